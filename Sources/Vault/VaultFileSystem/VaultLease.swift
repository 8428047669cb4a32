internal import Glibc
package import LinuxSystem
package import Locking
internal import Synchronization
package import VaultCrypto
package import VaultFormat
package import VaultStore

/// The slot that opened a mounted vault, and the end of its lease (FileFormat, Leases). Any thread.
package final class VaultLease: LeaseKeeper {
    private struct State {
        var slot: KeySlot
        /// The stamp of the `vaultfs.json` from which the slot was read. Nil to read it again.
        var readFrom: FileStamp?
    }

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
        let begun = try Self.begin(slot, of: vault, configurationKey: keyRing.configurationKey, at: now)
        state = Mutex(State(slot: begun, readFrom: readFrom))
    }

    /// The stamp of `vaultfs.json`, or nil if fstatat(2) fails.
    private static func stamp(of vault: VaultDirectory) -> FileStamp? {
        (try? vault.descriptor.status(of: VaultDirectory.configurationEntry)).map { FileStamp($0) }
    }

    /// Seconds since 1970-01-01T00:00:00Z, by the wall clock or, if it was set back, by the time since the mount.
    package var now: Int64 { max(clock.wall(), origin.wall + clock.boot() - origin.boot) / 1000 }

    private var slot: KeySlot { state.withLock { $0.slot } }

    package var end: LeaseEnd? {
        slot.end.map { end in LeaseEnd(wall: end * 1000, boot: origin.boot + end * 1000 - origin.wall) }
    }

    /// Returns another slot of this vault, and starts its window.
    /// - Parameter masterKey: the key with which `vault` was opened.
    /// - Throws: as `init`.
    package func begin(_ slot: Int, of vault: VaultDirectory, masterKey: SecretBytes) throws(VaultError) -> KeySlot {
        let key = try SlotEditor.wrapping { () throws(FormatError) in
            try KeyDerivation.configurationKey(master: masterKey, vault: vault.configuration.vault)
        }
        return try Self.begin(slot, of: vault, configurationKey: key, at: now)
    }

    /// Makes another slot the one that opened the vault.
    package func setSlot(_ new: KeySlot) {
        // Read it again, because it may have been revoked meanwhile.
        state.withLock { $0 = State(slot: new, readFrom: nil) }
    }

    package var isOver: Bool { isOver(slot) }

    private func isOver(_ slot: KeySlot) -> Bool { slot.end.map { now >= $0 } ?? false }

    package func hasEnded() -> Bool {
        let state = state.withLock { $0 }
        let (slot, isOver) = (state.slot, isOver(state.slot))
        // Take the stamp before reading, so that a change meanwhile causes another read.
        let current = Self.stamp(of: vault)
        guard isOver || state.readFrom != current else { return false }
        // Without the key, a change of vaultfs.json cannot be authenticated.
        guard !keyRing.configurationKey.isForgotten else { return isOver }
        do throws(VaultError) {
            let new =
                isOver
                ? try Self.begin(slot.id, of: vault, configurationKey: keyRing.configurationKey, at: now)
                : try reread(slot)
            guard let new else { return true }
            // An unlock may have changed the slot meanwhile.
            self.state.withLock { if $0.slot == slot { $0 = State(slot: new, readFrom: current) } }
            return false
        } catch {
            log("\(error)")
            // Only an authenticated change can end a lease early.
            return isOver
        }
    }

    /// Reads the slot again, before its known end. Returns nil if the lease has ended. If the slot was removed, a lease
    /// with an end is revoked, but one without an end continues, because only its secret has become useless.
    private func reread(_ slot: KeySlot) throws(VaultError) -> KeySlot? {
        let configuration = try vault.reread().authenticated(by: keyRing.configurationKey)
        guard let new = configuration.slot(slot.id) else {
            if slot.end != nil { log("slot \(slot.id) was removed") }
            return slot.end == nil ? slot : nil
        }
        if new.isExpired(at: now) { return nil }
        guard let window = new.window, window.started == nil else { return new }
        return try Self.begin(slot.id, of: vault, configurationKey: keyRing.configurationKey, at: now)
    }

    package func saveTime() {
        let slot = slot
        guard slot.window != nil, !keyRing.configurationKey.isForgotten else { return }
        do throws(VaultError) {
            // Do not wait, because there will be a next time.
            try vault.saveTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: slot.id,
                configurationKey: keyRing.configurationKey, wait: .zero)
        } catch {
            log("the time cannot be recorded in slot \(slot.id): \(error)")
        }
    }

    private static func begin(
        _ id: Int, of vault: VaultDirectory, configurationKey: SecretBytes, at now: Int64
    ) throws(VaultError) -> KeySlot {
        var slot = try find(id, in: vault.reread().authenticated(by: configurationKey))
        // Check the lease before saving the time: an unusable slot must not get the time of a clock that was set back.
        try vault.checkLease(of: slot, at: now)
        if slot.window != nil {
            // Another process may be changing slots.
            let saved = try vault.saveTime(
                UtcTime.text(secondsSinceEpoch: now), inWindowOf: id, configurationKey: configurationKey,
                wait: .seconds(10))
            slot = try find(id, in: saved)
            try vault.checkLease(of: slot, at: now)
        }
        return slot
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

    package static let system = LeaseClock(
        wall: { Int64(nanoseconds(of: CLOCK_REALTIME) / 1_000_000) },
        boot: { Int64(nanoseconds(of: CLOCK_BOOTTIME) / 1_000_000) })
}
