internal import Glibc
package import LinuxSystem
package import Locking
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// The slot that opened a mounted vault, and the end of its lease (FileFormat, Leases). Any thread.
package final class VaultLease: LeaseKeeper {
    /// A valid slot.
    package struct Term: Sendable, Equatable {
        let slot: Int
        /// Seconds since 1970-01-01T00:00:00Z. Nil if it never expires.
        let end: Int64?
        let hasWindow: Bool
    }

    private struct State {
        var term: Term
        /// The stamp of the `vaultfs.json` from which the term was read. Nil to read it again.
        var readFrom: FileStamp?
    }

    /// Timeout for another process that is changing slots when a window must start.
    private static let slotChangeTimeout: Duration = .seconds(10)

    private let vault: VaultDirectory
    private let keyRing: KeyRing
    private let clock: LeaseClock
    /// The clocks at the mount.
    private let origin: (wall: Int64, boot: Int64)
    private let state: Mutex<State>
    package let changes: EntryWatch?
    private let log: @Sendable (String) -> Void

    /// Starts the slot's window, if it has not started yet.
    /// - Parameters:
    ///   - vault: authenticated.
    ///   - slot: the id of the opened slot.
    ///   - log: called with later errors.
    /// - Throws: `slotEnded`, `refused`, `inUse`, `unusable`, `system`.
    package init(
        slot: Int, of vault: VaultDirectory, keyRing: KeyRing, clock: LeaseClock = .system,
        log: @escaping @Sendable (String) -> Void
    ) throws(VaultError) {
        (self.vault, self.keyRing, self.clock, self.log) = (vault, keyRing, clock, log)
        origin = (clock.wall(), clock.boot())
        let now = origin.wall / 1000
        changes = try? EntryWatch(VaultDirectory.configurationEntry, in: vault.descriptor)
        // Take the stamp before reading, so that a later change is found.
        let readFrom = Self.stamp(of: vault)
        let term = try Self.begin(slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
        state = Mutex(State(term: term, readFrom: readFrom))
    }

    /// The stamp of `vaultfs.json`, or nil if fstatat(2) fails.
    private static func stamp(of vault: VaultDirectory) -> FileStamp? {
        (try? vault.descriptor.status(of: VaultDirectory.configurationEntry)).map { FileStamp($0) }
    }

    /// Seconds since 1970-01-01T00:00:00Z, by the wall clock or, if it was set back, by the time since the mount.
    package var now: Int64 { max(clock.wall(), origin.wall + clock.boot() - origin.boot) / 1000 }

    private var term: Term { state.withLock { $0.term } }

    package var end: LeaseEnd? {
        term.end.map { end in LeaseEnd(wall: end * 1000, boot: origin.boot + end * 1000 - origin.wall) }
    }

    /// Returns the term of another slot of this vault, and starts its window.
    /// - Parameter masterKey: the key with which `vault` was opened.
    /// - Throws: as `init`.
    package func begin(_ slot: Int, of vault: VaultDirectory, masterKey: SecretBytes) throws(VaultError) -> Term {
        let key: SecretBytes
        do throws(FormatError) {
            key = try KeyDerivation.configurationKey(master: masterKey, vault: vault.configuration.vault)
        } catch {
            throw .format(error)
        }
        return try Self.begin(slot, of: vault, configurationKey: key, at: now)
    }

    /// Makes the slot of `new` the one that opened the vault.
    package func setTerm(_ new: Term) {
        // Read it again, because it may have been revoked meanwhile.
        state.withLock { $0 = State(term: new, readFrom: nil) }
    }

    package var isOver: Bool { isOver(term) }

    private func isOver(_ term: Term) -> Bool { term.end.map { now >= $0 } ?? false }

    package func hasEnded() -> Bool {
        let state = state.withLock { $0 }
        let (term, isOver) = (state.term, isOver(state.term))
        // Take the stamp before reading, so that a change meanwhile causes another read.
        let current = Self.stamp(of: vault)
        guard isOver || state.readFrom != current else { return false }
        // Without the key, a change of vaultfs.json cannot be authenticated.
        guard !keyRing.configurationKey.isForgotten else { return isOver }
        do throws(VaultError) {
            let new =
                isOver
                ? try Self.begin(term.slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
                : try rereadSlot(at: term)
            guard let new else { return true }
            setTerm(new, insteadOf: term, readFrom: current)
            return false
        } catch {
            log("\(error)")
            // Only an authenticated change can end a lease early.
            return isOver
        }
    }

    /// Reads the slot again, before its known end. Returns nil if the lease has ended. If the slot was removed, a lease
    /// with an end is revoked, but one without an end continues, because only its secret has become useless.
    private func rereadSlot(at term: Term) throws(VaultError) -> Term? {
        let configuration = try vault.reread().authenticated(by: keyRing.configurationKey)
        guard let slot = configuration.slot(term.slot) else {
            if term.end != nil { log("slot \(term.slot) was removed") }
            return term.end == nil ? term : nil
        }
        if slot.isExpired(at: now) { return nil }
        let isToStart = slot.window.map { $0.started == nil } ?? false
        return isToStart
            ? try Self.begin(term.slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
            : Term(slot: slot.id, end: slot.end, hasWindow: slot.window != nil)
    }

    /// Replaces the term, unless an unlock has changed it meanwhile.
    private func setTerm(_ new: Term, insteadOf old: Term, readFrom: FileStamp?) {
        state.withLock { if $0.term == old { $0 = State(term: new, readFrom: readFrom) } }
    }

    package func saveTime() {
        let term = term
        guard term.hasWindow, !keyRing.configurationKey.isForgotten else { return }
        do throws(VaultError) {
            // Do not wait, because there will be a next time.
            try vault.saveTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: term.slot,
                configurationKey: keyRing.configurationKey, wait: .zero)
        } catch {
            log("the time cannot be recorded in slot \(term.slot): \(error)")
        }
    }

    private static func begin(
        _ id: Int, of vault: VaultDirectory, configurationKey: SecretBytes, at now: Int64
    ) throws(VaultError) -> Term {
        var configuration = try vault.reread().authenticated(by: configurationKey)
        var slot = try find(id, in: configuration)
        // Check the lease before saving the time: an unusable slot must not get the time of a clock that was set back.
        try vault.checkLease(of: slot, at: now)
        if slot.window != nil {
            configuration = try vault.saveTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: id, configurationKey: configurationKey,
                wait: slotChangeTimeout)
            slot = try find(id, in: configuration)
            try vault.checkLease(of: slot, at: now)
        }
        return Term(slot: id, end: slot.end, hasWindow: slot.window != nil)
    }

    private static func find(_ id: Int, in configuration: VaultConfiguration) throws(VaultError) -> KeySlot {
        guard let slot = configuration.slot(id) else { throw .refused("slot \(id) was removed") }
        return slot
    }
}

/// The clocks of a lease. Any thread.
package struct LeaseClock: Sendable {
    /// CLOCK_REALTIME, in milliseconds since 1970-01-01T00:00:00Z.
    let wall: @Sendable () -> Int64
    /// CLOCK_BOOTTIME, in milliseconds.
    let boot: @Sendable () -> Int64

    /// The kernel's clocks (clock_gettime(2)).
    package static let system = LeaseClock(
        wall: { Int64(nanoseconds(of: CLOCK_REALTIME) / 1_000_000) },
        boot: { Int64(nanoseconds(of: CLOCK_BOOTTIME) / 1_000_000) })
}
