import Foundation
import Locking
import Testing
import VaultCrypto

@testable import Control

@Suite struct ControlMessageTests {
    @Test("a status comes back as it was")
    func statusComesBackWas() throws {
        var status = status()
        status.memory = MemoryProtection(keys: .locked, cacheIsLocked: false, coreDumpsOff: true, notDumpable: false)
        status.problems = ["text\n\u{0}"]
        try expectSame(.status(status), .status)
    }

    @Test("answers come back as they were")
    func answersComeBackAsThey() throws {
        try expectSame(.locked(receipt: receipt, already: true), .lock(forgetsKeys: false))
        try expectSame(.unlocked(already: false), .unlock(nil))
        try expectSame(.synchronized, .sync)
        try expectSame(.subscribed(state()), .events)
        let failures = [
            ControlFailure(.lockFileExists, "a lock file exists", lockFiles: ["/a", "/b\n"]),
            ControlFailure(.tooManyTries, "too many tries", retryAfterSeconds: 1.5),
            try JSONDecoder().decode(
                ControlFailure.self, from: Data(#"{"code":"of-tomorrow","error":"new"}"#.utf8)),
        ]
        for failure in failures {
            for request in [ControlRequest.status, .sync, .lock(forgetsKeys: false), .unlock(nil), .events] {
                try expectSame(.error(failure), request)
            }
        }
    }

    private func expectSame(_ response: ControlResponse, _ request: ControlRequest) throws {
        let line = jsonLine(response)
        #expect(line.count { $0 == UInt8(ascii: "\n") } == 1)
        #expect(line.last == UInt8(ascii: "\n"))
        #expect(try ControlResponse.parse(Data(line.dropLast()), to: request) == response)
    }

    @Test("an answer that is none")
    func answerNone() {
        for request in [ControlRequest.status, .sync, .lock(forgetsKeys: false), .unlock(nil), .events] {
            #expect(throws: ControlError.self) { try ControlResponse.parse(Data("{}".utf8), to: request) }
            #expect(throws: ControlError.self) { try ControlResponse.parse(Data([0xFF]), to: request) }
        }
    }

    @Test("an event says only what it has")
    func eventSaysOnly() throws {
        let unlocked = ControlEvent(.didUnlock, time: "t", mountpoint: "/mnt")
        #expect(
            String(decoding: unlocked.line, as: UTF8.self) == #"{"event":"did-unlock","mountpoint":"/mnt","time":"t"}"#)
        let locked = ControlEvent(.didLock(receipt), time: "t", mountpoint: "/mnt")
        #expect(try JSONDecoder().decode(ControlEvent.self, from: Data(locked.line)) == locked)
    }

    @Test("a receipt of another version has what the page promises")
    func receiptOfAnotherVersion() throws {
        let line = #"{"already":false,"ofTomorrow":1,"receipt":{"complete":true,"unpurged":[]},"state":"locked"}"#
        guard
            case .locked(let receipt, false) = try ControlResponse.parse(Data(line.utf8), to: .lock(forgetsKeys: false))
        else {
            Issue.record("no receipt")
            return
        }
        #expect(receipt.complete && receipt.unpurged.isEmpty && receipt.inodes == nil)
    }

    @Test("a lock that forgets is a lock to a daemon that does not know it")
    func lockThatForgetsIsLock() throws {
        let line = try ControlRequest.lock(forgetsKeys: true).line().withUnsafeBytes { Array($0) }
        #expect(String(decoding: line, as: UTF8.self) == "{\"request\":\"lock\",\"forget\":true}\n")
        let parsed = try line.withUnsafeBytes { try ControlRequest.parse($0) }
        guard case .lock(forgetsKeys: true) = parsed else { throw ControlError.notUnderstood("\(parsed)") }
        #expect(throws: ControlFailure.self) {
            try Array("{\"request\":\"status\",\"forget\":true}".utf8).withUnsafeBytes { try ControlRequest.parse($0) }
        }
    }

    @Test(
        "a line that is no event is refused",
        arguments: ["", "[]", "{}", "{\"event\":\"did-lock\"}", "{\"event\":1,\"time\":\"t\",\"mountpoint\":\"/\"}"])
    func lineThatIsNoEvent(line: String) {
        #expect(throws: (any Error).self) { try JSONDecoder().decode(ControlEvent.self, from: Data(line.utf8)) }
    }
}
