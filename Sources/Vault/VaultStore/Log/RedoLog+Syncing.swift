internal import Glibc
package import LinuxSystem
internal import Synchronization

/// Syncs of the log, and what follows if it does not work.
extension RedoLog {
    /// Makes the entries up to `sequence` durable, with one fdatasync(2) for all threads that wait.
    /// - Throws: the sync's error. The entries then stay doubtful until a new log has them.
    func synchronize(through sequence: UInt64) throws(StoreError) {
        if durable.load(ordering: .acquiring) >= sequence { return }
        // A new log is durable.
        if try !synchronizeEntries(through: sequence) { try renewIfNeeded() }
    }

    /// Returns false, with the fault noted, if the log's name leads elsewhere by now.
    func synchronizeEntries(through sequence: UInt64) throws(StoreError) -> Bool {
        try syncing.withLock { (_) throws(StoreError) -> Bool in
            if durable.load(ordering: .acquiring) >= sequence { return true }
            let (written, phase, size) = state.access { state in
                (state.sequence - 1, state.phase, state.prepared)
            }
            if let fault = phase.fault { throw fault }
            guard let log = phase.log else { return true }
            do throws(StoreError) { try log.descriptor.synchronize(dataOnly: true) } catch {
                fail(error)
                throw error
            }
            // After the sync: what is acknowledged must be where the next mount looks.
            guard hasItsName(log, size: size) else {
                fail(.damaged("vaultfs.log was removed, replaced or cut"))
                return false
            }
            durable.store(written, ordering: .releasing)
            return true
        }
    }

    /// True if the log's name leads to this file, with all of its bytes.
    func hasItsName(_ log: OpenLog, size: UInt64) -> Bool {
        guard let named = try? root.status(of: Self.entry) else { return false }
        return FileIdentity(named) == log.identity && UInt64(clamping: named.st_size) >= size
    }

    /// The last entry that is durable.
    var durableSequence: UInt64 { durable.load(ordering: .acquiring) }

    /// Makes all entries durable.
    /// - Throws: the error for which a new log must begin.
    package func synchronize() throws(StoreError) {
        try synchronize(through: state.access { $0.sequence - 1 })
    }

    /// Makes sure that nothing is acknowledged until a new log is there, and wakes the thread that makes it.
    func fail(_ error: StoreError) {
        if state.access({ setFault(error, &$0) }) { reportFault(error) }
    }

    /// Returns false if the log did not work before, or has no file: the next append tries to make one.
    func setFault(_ error: StoreError, _ state: inout State) -> Bool {
        switch state.phase {
        case .absent, .failed: return false
        case .working(let log), .needsSalt(let log): state.phase = .failed(log, error)
        }
        return true
    }

    func reportFault(_ error: StoreError) {
        faults.add(
            .log,
            "vaultfs.log does not work (\(error.reason)): overwrites and fsyncs fail until a new one is there"
        )
        // A new log may have begun meanwhile.
        if state.access({ $0.phase.fault == nil }) { faults.clear(.log) }
        schedule.hurry()
    }

    /// Waits for the durability thread to begin a new log, because the store may be back already. Only for a program's request,
    /// without a lock of the log: the thread itself would wait for nothing, once for each file that it syncs, and a lock must
    /// not wait.
    /// - Returns: true if the log did not work, and does now.
    @discardableResult
    package func awaitRenewal() -> Bool {
        let renewals = schedule.renewals
        return state.access { $0.phase.fault != nil } && schedule.awaitRenewal(after: renewals)
    }
}
