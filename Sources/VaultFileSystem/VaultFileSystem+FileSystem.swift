package import FileSystem
package import LinuxSystem
internal import Synchronization
package import VaultStore

extension Workspace: WorkerBuffers {}

extension VaultFileSystem: FileSystem {
    /// While we own the vault only we change it.
    package var cacheSeconds: Double { store.followsWriter ? 1 : 60 }

    package func makeWorkspace() throws(StoreError) -> Workspace {
        try Workspace(layout: store.layout)
    }

    package func runInBackground() {
        let completing = store.completion.flatMap { _ in try? BackgroundThread { self.completeEverything() } }
        store.sealer.run()
        completing?.join()
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

    /// Pages stay right across opens: nobody else changes the vault (and mtime tells if somebody did), or they go. A file only half
    /// vouched for is read exactly: the rest of a page would be filled up with zeros.
    package func pageCaching(of handle: FileHandle) -> PageCaching {
        handle.file.hasUnsealedTail ? .bypass : store.followsWriter ? .drop : .keep
    }
}
