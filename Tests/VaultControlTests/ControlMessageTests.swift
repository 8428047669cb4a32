import Testing

@testable import VaultControl

@Suite struct ControlMessageTests {
    private static let values: [JSONValue?] = [
        nil, .object([:]), .object(["a": .integer(-1), "b": .unsigned(.max), "c": .number(0.5)]),
        .array([.null, .bool(true), .string("text\n\u{0}")]),
    ]

    @Test(arguments: values)
    func `a status comes back as it was`(statistics: JSONValue?) throws {
        let response = ControlResponse.status(status(statistics: statistics))
        let line = ControlMessage.line(of: response)
        #expect(line.count { $0 == UInt8(ascii: "\n") } == 1)
        #expect(line.last == UInt8(ascii: "\n"))
        #expect(try ControlMessage.response(line: line.dropLast()) == response)
    }

    @Test func `an answer that is none`() {
        #expect(throws: ControlError.self) { try ControlMessage.response(line: Array("{}".utf8)) }
        #expect(throws: ControlError.self) { try ControlMessage.response(line: [0xFF]) }
    }

    @Test func `request lines`() {
        #expect(ControlMessage.line(of: ControlRequest.status) == Array("{\"request\":\"status\"}\n".utf8))
        #expect(ControlMessage.request(line: Array(" { \"request\" : \"status\" } ".utf8)) == .success(.status))
    }
}
