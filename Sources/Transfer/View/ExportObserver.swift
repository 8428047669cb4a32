/// Who is told how an export goes; called by its thread.
package struct ExportObserver {
    /// A path, relative to the source, that is not exported, and why.
    let failed: ([UInt8], String) -> Void
    /// After each batch of at most 1 MiB. Returns false to stop.
    let goesOn: (ExportTotals) -> Bool

    package init(failed: @escaping ([UInt8], String) -> Void, goesOn: @escaping (ExportTotals) -> Bool) {
        self.failed = failed
        self.goesOn = goesOn
    }
}
