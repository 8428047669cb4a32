import Foundation
import Glibc
import TestSupport
import Testing

/// A vault written by another process on this machine, under another path. `vaultfs.lock` shows this.
@Suite(.timeLimit(.minutes(60))) struct HeldVaultTests {
    private let place: SlotPlace
    private var lockFile: URL { URL(fileURLWithPath: place.vault + "/vaultfs.lock") }

    init() throws { place = try SlotPlace() }

    private func user() throws -> [String: Any]? {
        try place.run(["info", "--json", place.vault]).succeeded().fields()["mounted"] as? [String: Any]
    }

    @Test("a process of this machine is found by its note, and no other is taken for it")
    func processOfThisMachine() throws {
        let boot = try String(contentsOfFile: "/proc/sys/kernel/random/boot_id", encoding: .utf8).dropLast()
        let stat = try String(contentsOfFile: "/proc/self/stat", encoding: .utf8)
        let fields = try #require(stat.split(separator: ")").last).split(separator: " ")
        let namespace = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/ns/pid")
            .filter(\.isNumber)
        func note(_ start: Substring) -> String { "5e \(boot) \(getpid()) here \(start) \(namespace)\n" }
        try Data(note(fields[19]).utf8).write(to: lockFile)
        let user = try #require(try user())
        #expect(user["pid"] as? Int32 == getpid() && user["host"] == nil && user["command"] != nil)
        try Data(note("1").utf8).write(to: lockFile)
        #expect(try self.user() == nil)
    }
}
