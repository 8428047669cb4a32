import Control
import Daemon
import Foundation
import Testing
import VaultCrypto

@Suite struct MemoryProtectionTests {
    @Test("protection that was granted causes no warning")
    func protectionThatWasGrantedCauses() {
        let all = MemoryProtection(keys: .memfdSecret, cacheIsLocked: true, coreDumpsOff: true, notDumpable: true)
        #expect(all.shortcomings.isEmpty)
    }

    @Test("protection that was not granted is reported, each once")
    func protectionThatWasNotGranted() {
        let none = MemoryProtection(keys: .unlocked, cacheIsLocked: false, coreDumpsOff: false, notDumpable: false)
        #expect(none.shortcomings.count == 4)
        let some = MemoryProtection(keys: .locked, cacheIsLocked: true, coreDumpsOff: true, notDumpable: true)
        #expect(some.shortcomings == ["no memfd_secret for keys: locked memory only, which root can read"])
    }

    @Test("as status shows it")
    func asStatusShows() throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        let some = MemoryProtection(keys: .memfdSecret, cacheIsLocked: true, coreDumpsOff: true, notDumpable: false)
        #expect(
            String(decoding: try encoder.encode(some), as: UTF8.self)
                == #"{"cache":"mlock","coreDumpsOff":true,"keys":"memfd_secret","notDumpable":false}"#)
    }

    @Test("the process says how it is protected")
    func processSaysHow() async {
        await #expect(processExitsWith: .success) {
            ProcessSetup.protectMemory()
            let protection = MemoryProtection(cacheIsLocked: false)
            #expect(protection.coreDumpsOff == true && protection.notDumpable == true)
            #expect(protection.cache == "swappable")
            #expect(protection.keys == SecretMemory.kind.rawValue)
        }
    }
}
