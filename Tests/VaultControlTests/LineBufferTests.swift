import Testing

@testable import VaultControl

@Suite struct LineBufferTests {
    @Test func `lines in any pieces`() throws {
        let text = Array("one\n\nthree\nrest".utf8)
        for size in 1...text.count {
            let buffer = LineBuffer(maximumLineSize: 5)
            var lines: [String] = []
            for start in stride(from: 0, to: text.count, by: size) {
                buffer.append(Array(text[start..<min(text.count, start + size)]))
                while let line = try buffer.takeLine({ String(decoding: $0, as: UTF8.self) }) { lines.append(line) }
            }
            #expect(lines == ["one", "", "three"])
            #expect(buffer.isHoldingPart)
        }
    }

    @Test(arguments: [("12345\n", true), ("12345", true), ("123456", false), ("123456\n", false)])
    func `the longest line`(text: String, isTaken: Bool) throws {
        let buffer = LineBuffer(maximumLineSize: 5)
        buffer.append(Array(text.utf8))
        if isTaken {
            _ = try buffer.takeLine { $0.count }
        } else {
            #expect(throws: LineBuffer.Failure.lineTooLong) { try buffer.takeLine { $0.count } }
        }
    }
}
