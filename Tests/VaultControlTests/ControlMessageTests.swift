import Foundation
import Testing
import VaultCrypto
import VaultFormat

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
        #expect(try ControlMessage.response(line: Data(line.dropLast()), to: .status) == response)
    }

    @Test func `an answer that is none`() {
        for request in [ControlRequest.status, .stats, .lock, .unlock(nil), .events] {
            #expect(throws: ControlError.self) { try ControlMessage.response(line: Data("{}".utf8), to: request) }
            #expect(throws: ControlError.self) { try ControlMessage.response(line: Data([0xFF]), to: request) }
        }
    }
}
