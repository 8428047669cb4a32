import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import VaultStore

@Suite struct HoleCheckTests {
    @Test("Holes-1: a checkpoint that makes the file longer loses no byte to the look whether the store can make holes")
    func besideCheckpoint() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        try file.put(pattern(14_000), at: 0)
        // The last record becomes durable, and only the log gets a longer one.
        try file.synchronize(dataOnly: true)
        try file.put(pattern(500, seed: 2), at: 14_000)
        try #require(file.isLogged)
        var expected = pattern(14_000) + pattern(500, seed: 2)
        expected.replaceSubrange(4096..<8192, with: [UInt8](repeating: 0, count: 4096))

        let hasBegun = Monitor(false)
        let isOver = Monitor(false)
        // The checkpoint runs between the check of the size and the hole after it, as late as possible.
        let beforeHole = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write,
                hasBegun.access({ wasBegun in
                    defer { wasBegun = true }
                    return !wasBegun
                })
            else { return 0 }
            let checkpoint = try? BackgroundThread {
                let isExcluded = (try? file.parts.unlessHiddenWrite { true }) == nil
                if !isExcluded { #expect(throws: Never.self) { try store.log.checkpoint(.due) } }
                isOver.update { $0 = true }
            }
            #expect(isOver.wait(until: .now + .seconds(20)) { $0 ? () : nil } != nil)
            checkpoint?.join()
            return 0
        }
        try CallWatcher.watch(vault.path, beforeHole) {
            try file.punchHole(4096..<8192, workspace: Workspace(layout: vault.layout))
        }
        #expect(hasBegun.access { $0 })
        #expect(try file.contents() == expected)
        try store.log.checkpoint(.due)
        #expect(try file.contents() == expected)
        #expect(try file.sealInPlace())
        #expect(try vault.reopen(in: try vault.open()).contents() == expected)
    }

    @Test(
        "A hole past the end, and a truncation to the same length, change both times, as on other file systems",
        arguments: [true, false], [true, false])
    func times(isLogged: Bool, punches: Bool) throws {
        let vault = try TestStore()
        try vault.make(pattern(9000))
        let file = try vault.reopen(in: try vault.open())
        if isLogged { try file.put(pattern(500), at: 4000) }
        try #require(file.isLogged == isLogged)
        let status = { try file.parts.log.shownStatus(file.reader.status()) }
        let before = try status()
        awaitTick()
        if punches {
            try file.punchHole(9000..<9001, workspace: Workspace(layout: vault.layout))
        } else {
            try file.truncate(to: 9000)
        }
        let after = try status()
        #expect(after.st_mtim.nanoseconds > before.st_mtim.nanoseconds)
        #expect(after.st_ctim.nanoseconds > before.st_ctim.nanoseconds)
        #expect(try file.contents().count == 9000)
    }
}
