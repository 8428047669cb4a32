internal import FileSystem
internal import Glibc
internal import Synchronization

/// One file, directory or link. A file has a length and no contents; itself it is what the kernel has open.
final class NullNode: OpenFile, @unchecked Sendable {
    // @unchecked: all but `length` is read and changed under the tree's mutex.
    var attributes = stat()
    /// Bytes. Apart, so that reads and writes take no lock.
    let length = Atomic<UInt64>(0)
    let sequence = ReadSequence()
    /// The target of a link.
    var target: [UInt8] = []
    var children: [[UInt8]: NullNode] = [:]
    /// How often the kernel was told of it; as long as it was, the node stays, whatever its names.
    private var lookups: UInt64 = 0

    init(mode: mode_t, uid: uid_t, gid: gid_t) {
        attributes.st_mode = mode
        attributes.st_uid = uid
        attributes.st_gid = gid
        attributes.st_nlink = mode & S_IFMT == S_IFDIR ? 2 : 1
        attributes.st_blksize = 4096
        attributes.st_ino = ino_t(UInt(bitPattern: Unmanaged.passUnretained(self).toOpaque()))
        clock_gettime(CLOCK_REALTIME, &attributes.st_mtim)
        attributes.st_atim = attributes.st_mtim
        attributes.st_ctim = attributes.st_mtim
    }

    var isDirectory: Bool { attributes.st_mode & S_IFMT == S_IFDIR }

    /// The kernel's number of it: its address, as the vault's nodes have.
    var id: NodeID { NodeID(UInt64(attributes.st_ino)) }

    /// The attributes with the current length.
    var status: stat {
        var status = attributes
        let length = length.load(ordering: .relaxed)
        status.st_size = isDirectory ? 4096 : off_t(clamping: length)
        status.st_blocks = blkcnt_t(clamping: length / 512)
        return status
    }

    func extend(to end: UInt64) {
        length.max(end, ordering: .relaxed)
    }

    /// Counts a lookup.
    func entry() -> NodeEntry {
        if lookups == 0 { _ = Unmanaged.passRetained(self) }
        lookups += 1
        return NodeEntry(id: id, attributes: status)
    }

    func forget(_ count: UInt64) {
        guard lookups > 0 else { return }
        lookups -= min(count, lookups)
        if lookups == 0 { Unmanaged.passUnretained(self).release() }
    }
}

/// A directory that is open: what was in it when it was opened.
final class NullListing: Sendable {
    let entries: [(name: [UInt8], node: NullNode)]

    init(of directory: NullNode) {
        entries =
            [(name: Array(".".utf8), node: directory), (name: Array("..".utf8), node: directory)]
            + directory.children.map { (name: $0.key, node: $0.value) }
    }
}

/// A worker's buffer of zeros. A listing leaves its entries there, which no reader of a benchmark minds.
final class NullWorkspace: WorkerBuffers {
    /// The largest read that FUSE passes on.
    private static let size = 1 << 20

    let reply: UnsafeMutableRawBufferPointer

    init() {
        reply = .allocate(byteCount: Self.size, alignment: 4096)
        // Touched once: reading pages that were never written would be reading a single one, from the nearest cache.
        reply.initializeMemory(as: UInt8.self, repeating: 0)
    }

    deinit { reply.deallocate() }

    func wipe() {}
}
