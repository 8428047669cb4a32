internal import FileSystem
internal import Glibc
package import LinuxSystem
package import Locking
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
package import VaultStore

/// The slot by which a mounted vault is open, and until when it is (FileFormat, Leases). Any thread.
package final class VaultLease: LeaseKeeper {
    /// A slot that may be used.
    package struct Term: Sendable, Equatable {
        let slot: Int
        /// Seconds since 1970-01-01T00:00:00Z; nil for ever.
        let end: Int64?
        let hasWindow: Bool
    }

    private struct State {
        var term: Term
        /// The `vaultfs.json` in which the term was looked at last; nil: look again.
        var lookedAt: FileIdentity?
    }

    /// For another process that changes slots, where a window is to be started.
    private static let patience: Duration = .seconds(10)

    private let vault: VaultDirectory
    private let keyRing: KeyRing
    private let clock: LeaseClock
    /// What the clocks said at the mount.
    private let origin: (wall: Int64, boot: Int64)
    private let state: Mutex<State>
    package let changes: Descriptor?
    private let log: @Sendable (String) -> Void

    /// Starts the slot's window, if it has one that was not started.
    /// - Parameters:
    ///   - vault: authenticated.
    ///   - slot: the id of the one that was opened.
    ///   - log: told what goes wrong later.
    /// - Throws: `slotExpired`, `clockSetBack`, `slotRefused`, `inUse`, `damaged`, `newerVersion`, `system`, `format`.
    package init(
        slot: Int, of vault: VaultDirectory, keyRing: KeyRing, clock: LeaseClock = .system,
        log: @escaping @Sendable (String) -> Void
    ) throws(VaultError) {
        (self.vault, self.keyRing, self.clock, self.log) = (vault, keyRing, clock, log)
        origin = (clock.wall(), clock.boot())
        let now = origin.wall / 1000
        changes = Self.watch(vault)
        // Before it is read: what comes later is found.
        let lookedAt = FileIdentity(of: vault)
        let term = try Self.begin(slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
        state = Mutex(State(term: term, lookedAt: lookedAt))
    }

    /// Seconds since 1970-01-01T00:00:00Z: the wall clock, or what it would say had nobody set it back since the mount.
    package var now: Int64 { max(clock.wall(), origin.wall + clock.boot() - origin.boot) / 1000 }

    private var term: Term { state.withLock { $0.term } }

    package var end: LeaseEnd? {
        term.end.map { end in
            LeaseEnd(wall: end * 1000, boot: origin.boot + end * 1000 - origin.wall)
        }
    }

    /// What opening a slot for this mount gives. Starts its window.
    /// - Parameter masterKey: of `vault`, which was opened with it.
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

    /// From now on the vault is open by that slot.
    package func adopt(_ new: Term) {
        // Since it was begun, it may have been taken back.
        state.withLock { $0 = State(term: new, lookedAt: nil) }
    }

    package var isOver: Bool { isOver(term) }

    private func isOver(_ term: Term) -> Bool { term.end.map { now >= $0 } ?? false }

    package func hasEnded() -> Bool {
        let state = state.withLock { $0 }
        let (term, isOver) = (state.term, isOver(state.term))
        // What is not read through is looked at again.
        let current = FileIdentity(of: vault)
        guard isOver || state.lookedAt != current else { return false }
        // Without the key nobody can tell who has written vaultfs.json.
        guard !keyRing.configurationKey.isForgotten else { return isOver }
        do throws(VaultError) {
            let new =
                isOver
                ? try Self.begin(term.slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
                : try lookAgain(at: term)
            guard let new else { return true }
            adopt(new, insteadOf: term, lookedAt: current)
            return false
        } catch {
            log("\(error)")
            // Before its time, only what somebody with a key has written ends it.
            return isOver
        }
    }

    /// What the slot says now, before the end that was known.
    /// - Returns: nil where it has ended. One with an end has where it was removed: that was taken back. One without has not: it
    ///   is a secret that shall open the vault no more.
    private func lookAgain(at term: Term) throws(VaultError) -> Term? {
        let configuration = try vault.reread(configurationKey: keyRing.configurationKey)
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

    /// Unless an unlock has made it another one meanwhile, of which that file may say something else.
    private func adopt(_ new: Term, insteadOf old: Term, lookedAt: FileIdentity?) {
        state.withLock { if $0.term == old { $0 = State(term: new, lookedAt: lookedAt) } }
    }

    package func noteTime() {
        let term = term
        guard term.hasWindow, !keyRing.configurationKey.isForgotten else { return }
        do throws(VaultError) {
            // Not worth waiting for: there is a later one.
            try vault.noteTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: term.slot,
                configurationKey: keyRing.configurationKey, wait: .zero)
        } catch {
            log("the time is not noted in slot \(term.slot): \(error)")
        }
    }

    private static func begin(
        _ id: Int, of vault: VaultDirectory, configurationKey: SecretBytes, at now: Int64
    ) throws(VaultError) -> Term {
        var configuration = try vault.reread(configurationKey: configurationKey)
        var slot = try find(id, in: configuration)
        // Nothing is noted for a slot that does not open, least of all the time of a clock that was set back.
        try vault.checkLease(of: slot, at: now)
        if slot.window != nil {
            configuration = try vault.noteTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: id, configurationKey: configurationKey,
                wait: patience)
            slot = try find(id, in: configuration)
            try vault.checkLease(of: slot, at: now)
        }
        return Term(slot: id, end: slot.end, hasWindow: slot.window != nil)
    }

    private static func find(_ id: Int, in configuration: VaultConfiguration) throws(VaultError) -> KeySlot {
        guard let slot = configuration.slot(id) else { throw .slotRefused("slot \(id) was removed") }
        return slot
    }
}
