package import Glibc
package import LinuxSystem
internal import SystemPackage

/// A file system that cannot be changed (`EROFS`) and has no extended attributes.
package protocol ReadOnlyFileSystem: FileSystem {}

extension ReadOnlyFileSystem {
    private static var refusal: StoreError { .refused(.readOnlyFileSystem) }

    /// False, because the kernel checks access by the returned attributes.
    package var checksAccess: Bool { false }
    package func checkAccess(_ id: NodeID, _ mask: Int32, isOpening: Bool) {}

    package var writingHandles: Int { 0 }
    package func sealEverything() {}
    package func synchronizeEverything() {}

    package func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: File?, workspace: Workspace
    ) throws(StoreError) -> stat { throw Self.refusal }

    package func dropSetID(_ id: NodeID, for caller: () -> Caller) throws(StoreError) {}

    package func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        throw .system(.notSupported)
    }

    package func attributeNames(_ id: NodeID) throws(StoreError) -> [[UInt8]] { [] }

    package func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError) {
        throw Self.refusal
    }

    package func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry { throw Self.refusal }

    package func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError) {
        throw Self.refusal
    }

    package func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError) { throw Self.refusal }

    package func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, flags: Int32, for caller: Caller
    ) throws(StoreError) -> (entry: NodeEntry, handle: File) { throw Self.refusal }

    package func write(
        _ handle: File, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, isWriteBack: Bool,
        workspace: Workspace
    ) throws(StoreError) -> Int { throw Self.refusal }

    package func allocate(
        _ handle: File, mode: Int32, range: Range<UInt64>, workspace: Workspace
    ) throws(StoreError) { throw Self.refusal }

    package func copy(
        from source: File, at sourceOffset: UInt64, to destination: File, at destinationOffset: UInt64, count: Int,
        workspace: Workspace
    ) throws(StoreError) -> Int { throw Self.refusal }

    /// Does nothing, because there is nothing to write.
    package func synchronize(_ handle: File, dataOnly: Bool) throws(StoreError) {}

    package func synchronize(_ handle: Directory, dataOnly: Bool) throws(StoreError) {}
}
