import LinuxSystem
import TestSupport
import Testing

@testable import VaultStore

@Suite struct SealObserverTests {
    @Test("A file that is put in place and sealed very often needs no more stack each time")
    func constantStack() throws {
        let vault = try TestStore()
        let store = try vault.open()
        let file = try vault.create(in: store)
        let depth = StackDepth()
        file.parts.attributes.onHiddenWrite.set { status in if status.after == nil { depth.note() } }
        try file.put(pattern(5000), at: 0)
        for round in 0..<200 where depth.growth == 0 {
            try file.put([UInt8(truncatingIfNeeded: round)], at: 100)
            try store.log.checkpoint(.due)
        }
        #expect(depth.isNoted && depth.growth == 0)
    }
}
