import Testing

@testable import Control

@Suite struct LineBufferTests {
    @Test("lines in any pieces")
    func linesInAnyPieces() throws {
        let text = Array("one\n\nthree\nrest".utf8)
        for size in 1...text.count {
            let buffer = LineBuffer(maximumLineSize: 5)
            var lines: [String] = []
            for start in stride(from: 0, to: text.count, by: size) {
                buffer.append(Array(text[start..<min(text.count, start + size)]))
                while let line = try buffer.withNextLine({ String(decoding: $0, as: UTF8.self) }) { lines.append(line) }
            }
            #expect(lines == ["one", "", "three"])
            #expect(buffer.count > 0)
        }
    }

    @Test("the longest line", arguments: [("12345\n", true), ("12345", true), ("123456", false), ("123456\n", false)])
    func longestLine(text: String, isAccepted: Bool) throws {
        let buffer = LineBuffer(maximumLineSize: 5)
        buffer.append(Array(text.utf8))
        if isAccepted {
            _ = try buffer.withNextLine { $0.count }
        } else {
            let failure = ControlFailure(.requestTooLong, "a request of over 5 bytes")
            #expect(throws: failure) { try buffer.withNextLine { $0.count } }
        }
    }

    @Test("many lines through a small buffer, with a giant one among them")
    func manyLinesThroughSmallBuffer() throws {
        let buffer = LineBuffer(maximumLineSize: 1 << 20)
        let lines = (0..<100).map { number in
            String(repeating: "\(number % 10)", count: number == 50 ? 1 << 20 : number * 37)
        }
        let bytes = lines.flatMap { Array($0.utf8) + [UInt8(ascii: "\n")] }
        var received: [String] = []
        var position = 0
        while position < bytes.count {
            // Pieces have any size, so lines start anywhere in the buffer.
            let count = buffer.fill { room in
                let piece = bytes[position...].prefix(min(room.count, 1 + position * 7 % 9000))
                room.copyBytes(from: piece)
                return piece.count
            }
            position += count
            while let line = try buffer.withNextLine({ String(decoding: $0, as: UTF8.self) }) { received.append(line) }
        }
        #expect(received == lines)
        #expect(buffer.count == 0)
    }
}

extension LineBuffer {
    func append(_ bytes: [UInt8]) {
        _ = fill { room in
            room.copyBytes(from: bytes)
            return bytes.count
        }
    }
}
