package import FileSystem
package import LinuxSystem
internal import Synchronization
package import VaultStore

extension Workspace: WorkerBuffers {}

extension VaultFileSystem: FileSystem {
    /// Short if another machine writes the vault.
    package var cacheSeconds: Double { store.followsWriter ? 1 : 60 }

    package func makeWorkspace() throws(StoreError) -> Workspace {
        try Workspace(layout: store.layout)
    }

    package func runInBackground() {
        let completing = store.completion.flatMap { _ in try? BackgroundThread { self.completeEverything() } }
        store.sealer.run()
        completing?.join()
    }

    package func statistics() -> Statistics {
        Statistics(
            store.counters, cache: store.cache, nodes: nodes.count, isCompleting: store.completion?.isActive ?? false)
    }

    package func setAttributeObserver(_ observer: @escaping @Sendable (UInt64) -> Void) {
        attributeObserver.withLock { $0 = observer }
    }

    package func open(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: Workspace, deferring: () -> OpenOutcome<FileHandle>
    ) throws(StoreError) -> FileHandle? {
        try open(id, flags: flags, for: caller, workspace: workspace)
    }

    package func endDeferred() {}

    /// Pages stay valid across opens, because only this daemon changes the vault (and mtime shows other changes). If another
    /// machine writes the vault, they are dropped. A file with a tail that is not yet authenticated bypasses the page cache,
    /// because the kernel would fill the rest of a page with zeros.
    package func pageCaching(of handle: FileHandle) -> PageCaching {
        handle.file.hasUnsealedTail ? .bypass : store.followsWriter ? .drop : .keep
    }
}
