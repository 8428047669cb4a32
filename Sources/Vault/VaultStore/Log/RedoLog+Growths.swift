internal import LinuxSystem
internal import VaultFormat

/// Space in the log for the entries that take growths of files back.
extension RedoLog {
    /// The space that is kept for the entries, of one record each, that take growths back. More growths than the smallest
    /// log has room for take it as they come.
    func undoSpace(_ growths: UInt64) -> UInt64 {
        var entry = LogEntry(.records, fileID: 0)
        entry.bodySize = layout.recordSize
        return min(growths, 4) * entry.space
    }

    /// True if so many bytes leave the space that is kept, also if the log begins anew between two of these entries.
    func hasRoom(_ state: borrowing State, for space: UInt64, growths: UInt64) -> Bool {
        let kept = growths == 0 ? 0 : undoSpace(growths) + undoSpace(1)
        return state.used + space + kept <= state.header.logSize - LogHeader.areaSize
    }

    /// Runs `body`, a growth of a file, while the log keeps space for the entry that takes it back, also on a full disk.
    /// - Throws: `ENOSPC` with nothing changed; the error for which a new log must begin; the error of `body`.
    func keepingUndoSpace<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        while try !withLog({ (state) throws(StoreError) in
            let log = try open(&state)
            guard hasRoom(state, for: 0, growths: state.growths + 1) else { return false }
            let end = state.offset + undoSpace(state.growths + 1)
            try prepare(log.descriptor, upTo: min(state.header.logSize, end), &state)
            state.growths += 1
            return true
        }) {
            try checkpoint(.fullLog)
        }
        defer { state.access { $0.growths -= 1 } }
        return try body()
    }
}
