import FoundationEssentials
import Glibc
import LinuxSystem
import Locking
import Synchronization
import SystemPackage
import Testing
import VaultCrypto
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// The lease of a mounted vault, with clocks set by the tests.
@Suite(.timeLimit(.minutes(60))) struct VaultLeaseTests {
    /// A wall clock that anybody can set, and a boot clock that nobody can. In milliseconds.
    private final class Clocks: Sendable {
        private let times: Mutex<(wall: Int64, boot: Int64)>

        init(_ wall: Int64) { times = Mutex((wall, 5000)) }

        /// Lets time pass. Meanwhile the wall clock is set by `change` seconds.
        func pass(_ seconds: Int64, setting change: Int64 = 0) {
            times.withLock { $0 = ($0.wall + (seconds + change) * 1000, $0.boot + seconds * 1000) }
        }
        var clock: LeaseClock {
            LeaseClock(wall: { self.times.withLock { $0.wall } }, boot: { self.times.withLock { $0.boot } })
        }
    }

    /// A vault with a lease on slot 2. Removed with the object.
    private final class Place {
        let path = FilePath(FileManager.default.temporaryDirectory.path() + "/vaultfs-lease-" + UUID().uuidString)
        let owner: SlotSecret
        let leased: SlotSecret
        let masterKey: SecretBytes
        let keyRing: KeyRing
        /// A time in seconds, after the slots were made, however long that took.
        let start: Int64
        let clocks: Clocks

        init(expiresAfter seconds: Int64? = nil, window: Int? = nil) throws {
            owner = try SlotSecret.keyfile([UInt8](repeating: 1, count: 32))
            leased = try SlotSecret.keyfile([UInt8](repeating: 2, count: 32))
            try VaultCreation.create(at: path, chunkSize: 4096, slots: [SlotRequest(secret: owner)])
            let vault = try VaultDirectory.open(path)
            masterKey = try vault.openSlot(with: owner).masterKey
            keyRing = try KeyRing(masterKey: masterKey, configuration: vault.configuration)
            start = UtcTime.secondsSinceEpoch() + 1000
            clocks = Clocks(start * 1000)
            let expires = seconds.map { [start] in UtcTime.text(secondsSinceEpoch: start + $0) }
            try SlotEditor(vault, masterKey: masterKey).add(
                SlotRequest(secret: leased, expires: expires, window: window.map { try PlayWindow(seconds: $0) }))
        }

        deinit { try? FileManager.default.removeItem(atPath: path.string) }

        func lease(of slot: Int = 2, clock: LeaseClock? = nil) throws -> VaultLease {
            try VaultLease(
                slot: slot, of: VaultDirectory.open(path), keyRing: keyRing, clock: clock ?? clocks.clock, log: { _ in }
            )
        }

        var slot: KeySlot? { get throws { try VaultDirectory.open(path).configuration.slot(2) } }

        func change(expiresAfter seconds: Int64?) throws {
            let expires = seconds.map { UtcTime.text(secondsSinceEpoch: start + $0) }
            try SlotEditor(.open(path), masterKey: masterKey).change(
                #require(try slot), to: SlotRequest(secret: leased, expires: expires), isForced: false)
        }
    }

    @Test("it ends when the slot expires, on both clocks")
    func itEndsWhenSlotExpires() throws {
        let place = try Place(expiresAfter: 100)
        let lease = try place.lease()
        #expect(lease.end == LeaseEnd(wall: (place.start + 100) * 1000, boot: 5000 + 100_000))
        place.clocks.pass(99)
        #expect(!lease.hasEnded())
        place.clocks.pass(1)
        #expect(lease.hasEnded())
        #expect(try place.lease(of: 1).end == nil)
    }

    @Test("a clock that is set back while mounted does not prolong it, one that is set forward shortens it")
    func clockThatIsSetBack() throws {
        let place = try Place(expiresAfter: 100)
        let lease = try place.lease()
        place.clocks.pass(50, setting: -1_000_000)
        #expect(!lease.hasEnded())
        place.clocks.pass(50)
        #expect(lease.hasEnded())
        let other = try Place(expiresAfter: 100)
        let shortened = try other.lease()
        other.clocks.pass(1, setting: 99)
        #expect(shortened.hasEnded())
    }

    @Test("a slot that was renewed meanwhile lets it go on")
    func slotThatWasRenewedMeanwhile() throws {
        let place = try Place(expiresAfter: 100)
        let lease = try place.lease()
        try place.change(expiresAfter: 200)
        place.clocks.pass(100)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 200) * 1000)
        try place.change(expiresAfter: nil)
        place.clocks.pass(100)
        #expect(!lease.hasEnded())
        #expect(lease.end == nil)
    }

    @Test("a renewal that nobody with a key wrote, a slot that is gone, and forgotten keys do not")
    func renewalThatNobodyWithKey() throws {
        let place = try Place(expiresAfter: 100)
        let lease = try place.lease()
        let expires = try #require(try place.slot?.expires)
        place.clocks.pass(100)
        let json = place.path.appending("vaultfs.json").string
        let text = try String(contentsOfFile: json, encoding: .utf8)
        try Data(text.replacing(expires, with: "2999-01-01T00:00:00Z").utf8).write(to: URL(filePath: json))
        #expect(lease.hasEnded())
        try Data(text.utf8).write(to: URL(filePath: json))
        #expect(lease.hasEnded())
        try SlotEditor(.open(place.path), masterKey: place.masterKey).remove([2], isForced: false)
        #expect(lease.hasEnded())

        let other = try Place(expiresAfter: 100)
        let forgotten = try other.lease()
        try other.change(expiresAfter: 200)
        other.clocks.pass(100)
        other.keyRing.forget()
        #expect(forgotten.hasEnded())
        try other.keyRing.restore(masterKey: other.masterKey)
        #expect(!forgotten.hasEnded())
    }

    @Test("an end that is brought forward, or given, counts at once; one that is put off as well")
    func endThatIsBroughtForward() throws {
        let place = try Place(expiresAfter: 1000)
        let lease = try place.lease()
        #expect(!lease.hasEnded())
        try place.change(expiresAfter: 100)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 100) * 1000)
        try place.change(expiresAfter: 2000)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 2000) * 1000)
        place.clocks.pass(500)
        try place.change(expiresAfter: 400)
        #expect(lease.hasEnded())
        let endless = try Place()
        let other = try endless.lease()
        #expect(!other.hasEnded() && other.end == nil)
        try endless.change(expiresAfter: 50)
        #expect(!other.hasEnded())
        #expect(other.end?.wall == (endless.start + 50) * 1000)
    }

    @Test("a window that is given while mounted begins at once, and the note of it is no change")
    func windowThatIsGivenWhile() throws {
        let place = try Place()
        let lease = try place.lease()
        place.clocks.pass(7)
        _ = try SlotEditor(.open(place.path), masterKey: place.masterKey)
            .change(#require(try place.slot), toWindow: PlayWindow(seconds: 50), isForced: false)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 57) * 1000)
        let generation = try VaultDirectory.open(place.path).configuration.generation
        for _ in 0..<5 {
            place.clocks.pass(1)
            #expect(!lease.hasEnded())
        }
        #expect(try VaultDirectory.open(place.path).configuration.generation == generation)
    }

    @Test("a slot with an end that is removed ends; one without, and what nobody with a key wrote, does not")
    func slotWithEnd() throws {
        for (end, ends) in [(1000, true), (nil, false)] as [(Int64?, Bool)] {
            let place = try Place(expiresAfter: end)
            let lease = try place.lease()
            let json = place.path.appending("vaultfs.json").string
            let text = try String(contentsOfFile: json, encoding: .utf8)
            for junk in [
                "{}", text.replacing("\"id\": 2", with: "\"id\": 3"),
                text.replacing("\"generation\": ", with: "\"generation\": 1"),
            ] {
                try Data(junk.utf8).write(to: URL(filePath: json), options: .atomic)
                #expect(!lease.hasEnded(), "\(junk)")
            }
            try FileManager.default.removeItem(atPath: json)
            #expect(!lease.hasEnded())
            try Data(text.utf8).write(to: URL(filePath: json), options: .atomic)
            #expect(!lease.hasEnded())
            try SlotEditor(.open(place.path), masterKey: place.masterKey).remove([2], isForced: false)
            #expect(lease.hasEnded() == ends)
        }
    }

    @Test("a vaultfs.json that could not be checked is checked again, with nothing changed since")
    func vaultfsJsonThatCould() throws {
        let place = try Place(expiresAfter: 1000)
        let lease = try place.lease()
        try place.change(expiresAfter: 100)
        place.keyRing.forget()
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 1000) * 1000)
        try place.keyRing.restore(masterKey: place.masterKey)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 100) * 1000)

        // A window does not start while the clock is before the slot's creation.
        let endless = try Place()
        let early = Clocks((endless.start - 10_000) * 1000)
        let other = try endless.lease(clock: early.clock)
        _ = try SlotEditor(.open(endless.path), masterKey: endless.masterKey)
            .change(#require(try endless.slot), toWindow: PlayWindow(seconds: 50), isForced: false)
        #expect(!other.hasEnded() && other.end == nil)
        early.pass(0, setting: 10_000)
        #expect(!other.hasEnded())
        #expect(try endless.slot?.window?.started == UtcTime.text(secondsSinceEpoch: endless.start))
        #expect(other.end?.wall == (endless.start + 50) * 1000)
    }

    @Test("a change that is written during the read is read as well")
    func changeThatIsWrittenDuring() throws {
        let place = try Place()
        let whenRead = Mutex<(@Sendable () throws -> Void)?>(nil)
        let clock = place.clocks.clock
        // `VaultLease` calls this clock to compare the stored time.
        let lease = try place.lease(
            clock: LeaseClock(
                wall: {
                    if let body = whenRead.withLock({ $0.take() }) {
                        #expect(throws: Never.self) { try body() }
                    }
                    return clock.wall()
                }, boot: clock.boot))
        try place.change(expiresAfter: 1000)
        let (path, masterKey, secret) = (place.path, place.masterKey, place.leased)
        let sooner = UtcTime.text(secondsSinceEpoch: place.start + 100)
        whenRead.withLock {
            $0 = {
                let vault = try VaultDirectory.open(path)
                try SlotEditor(vault, masterKey: masterKey).change(
                    #require(vault.configuration.slot(2)), to: SlotRequest(secret: secret, expires: sooner),
                    isForced: false)
            }
        }
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 1000) * 1000)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 100) * 1000)
    }

    @Test("the removal of a slot before an unlock adopts its lease is seen, also during a check")
    func slotRemovedBeforeUnlock() throws {
        for isMeanwhile in [false, true] {
            let place = try Place()
            let whenRead = Mutex<(@Sendable () -> Void)?>(nil)
            let clock = place.clocks.clock
            // `VaultLease` calls this clock to compare the stored time.
            let lease = try place.lease(
                clock: LeaseClock(
                    wall: {
                        whenRead.withLock { $0.take() }?()
                        return clock.wall()
                    }, boot: clock.boot))
            let vault = try VaultDirectory.open(place.path)
            try SlotEditor(vault, masterKey: place.masterKey).add(
                SlotRequest(
                    secret: .keyfile([UInt8](repeating: 3, count: 32)),
                    expires: UtcTime.text(secondsSinceEpoch: place.start + 1000)))
            let term = try lease.begin(3, of: vault, masterKey: place.masterKey)
            try SlotEditor(.open(place.path), masterKey: place.masterKey).remove([3], isForced: false)
            if isMeanwhile { whenRead.withLock { $0 = { lease.setSlot(term) } } }
            #expect(!lease.hasEnded())
            #expect(whenRead.withLock { $0 == nil })
            if !isMeanwhile { lease.setSlot(term) }
            #expect(lease.end?.wall == (place.start + 1000) * 1000)
            #expect(lease.hasEnded())
        }
    }

    @Test("a replaced vaultfs.json is reported")
    func itIsToldThatVaultfs() throws {
        let place = try Place(expiresAfter: 1000)
        let changes = try #require(try place.lease().changes)
        var entry = pollfd(fd: changes.descriptor.fd, events: Int16(POLLIN), revents: 0)
        #expect(poll(&entry, 1, 0) == 0)
        try place.change(expiresAfter: 100)
        #expect(poll(&entry, 1, 20_000) == 1)
        #expect(changes.readChange())
    }

    @Test("a new directory in the vault's root is no change of the lease")
    func newDirectoryIsNoChange() throws {
        let place = try Place(expiresAfter: 1000)
        let changes = try #require(try place.lease().changes)
        let path = "\(place.path)/directory"
        #expect(mkdir("\(path).new", 0o700) == 0 && rename("\(path).new", path) == 0)
        var entry = pollfd(fd: changes.descriptor.fd, events: Int16(POLLIN), revents: 0)
        #expect(poll(&entry, 1, 20_000) == 1)
        #expect(!changes.readChange())
        #expect(poll(&entry, 1, 0) == 0)
    }

    @Test("unlocking with another slot takes that one's lease, with its own clock")
    func unlockingWithAnotherSlotTakes() throws {
        let place = try Place(expiresAfter: 100)
        let lease = try place.lease()
        place.clocks.pass(100, setting: -1000)
        #expect(lease.hasEnded())
        let vault = try VaultDirectory.open(place.path)
        #expect(throws: VaultError.self) { try lease.begin(2, of: vault, masterKey: place.masterKey) }
        #expect(lease.hasEnded())
        lease.setSlot(try lease.begin(1, of: vault, masterKey: place.masterKey))
        #expect(!lease.hasEnded() && lease.end == nil)
    }

    @Test("a mount starts the window, the next one finds it started, and after it none opens")
    func mountStartsWindow() throws {
        let place = try Place(window: 100)
        #expect(try place.slot?.window == PlayWindow(seconds: 100))
        let lease = try place.lease()
        let started = UtcTime.text(secondsSinceEpoch: place.start)
        #expect(try place.slot?.window?.started == started && place.slot?.window?.seen == started)
        #expect(lease.end?.wall == (place.start + 100) * 1000)
        place.clocks.pass(60)
        lease.saveTime()
        #expect(try place.slot?.window?.seen == UtcTime.text(secondsSinceEpoch: place.start + 60))
        #expect(try place.lease().end?.wall == (place.start + 100) * 1000)
        place.clocks.pass(40)
        #expect(lease.hasEnded())
        let ends = UtcTime.text(secondsSinceEpoch: place.start + 100)
        let expired = VaultError.slotEnded(
            "\(place.path): slot 2 expired at \(ends): renew it with 'vaultfs slot change' and another slot's secret")
        #expect(throws: expired) { try place.lease() }
        #expect(throws: expired) {
            try VaultDirectory.open(place.path).openSlot(with: place.leased, at: place.start + 100)
        }
    }

    @Test("a clock before what was seen opens neither a window nor an expiry, and writes nothing")
    func clockBeforeWhatWasSeen() throws {
        let place = try Place(window: 1000)
        let lease = try place.lease()
        place.clocks.pass(500)
        lease.saveTime()
        let before = try VaultDirectory.open(place.path).configuration
        let (clock, seen) = (place.start + 499, place.start + 500)
        let setBack = VaultError.slotEnded(
            "\(place.path): slot 2 expires, and the clock was set back: it shows \(UtcTime.text(secondsSinceEpoch: clock)), "
                + "the slot has seen \(UtcTime.text(secondsSinceEpoch: seen)). Correct the clock, or change the slot with "
                + "another slot's secret")
        #expect(throws: setBack) { try place.lease(clock: Clocks((place.start + 499) * 1000).clock) }
        #expect(throws: setBack) {
            try VaultDirectory.open(place.path).openSlot(with: place.leased, at: place.start + 499)
        }
        #expect(try VaultDirectory.open(place.path).configuration == before)
        // A slot without an expiry still opens the vault for its owner.
        #expect(try VaultDirectory.open(place.path).openSlot(with: place.owner, at: 0).slot.id == 1)
    }

    @Test("a window that is renewed lets the mount go on")
    func windowThatIsRenewedLets() throws {
        let place = try Place(window: 100)
        let lease = try place.lease()
        place.clocks.pass(100)
        let renewed = try SlotEditor(.open(place.path), masterKey: place.masterKey)
            .change(#require(try place.slot), toWindow: PlayWindow(seconds: 50), isForced: false)
        #expect(renewed.window?.started == nil)
        #expect(!lease.hasEnded())
        #expect(lease.end?.wall == (place.start + 150) * 1000)
        #expect(try place.slot?.window?.started == UtcTime.text(secondsSinceEpoch: place.start + 100))
    }
}
