/// Who is told how a transfer goes.
package struct TransferObserver: Sendable {
    /// A path below the source, and why it is not transferred. Called by any thread.
    let failed: @Sendable ([UInt8], String) -> Void
    /// A path below the source, the ranges of it that do not verify (none: nothing of it), and why. Called by any thread.
    let damaged: @Sendable ([UInt8], [Range<UInt64>], String) -> Void
    /// Asked by any thread, after at most 1 MiB.
    let isStopped: @Sendable () -> Bool

    package init(
        failed: @escaping @Sendable ([UInt8], String) -> Void,
        damaged: @escaping @Sendable ([UInt8], [Range<UInt64>], String) -> Void,
        isStopped: @escaping @Sendable () -> Bool
    ) {
        self.failed = failed
        self.damaged = damaged
        self.isStopped = isStopped
    }
}
