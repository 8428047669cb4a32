internal import Control
internal import Daemon
internal import FileSystem
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// A directory with one file, `secret`. Any thread.
final class SecretFile: ReadOnlyFileSystem, LockableFileSystem {
    private static let file = NodeID(2)
    private static let entries = [(".", NodeID.root), ("..", .root), ("secret", file)]

    let gate: LockGate
    let counters = Counters()
    let cache: BlockCache
    /// The secret. Nil while it is forgotten.
    private let content: Mutex<SecretBytes?>
    private let handles = Atomic<Int>(0)

    init(_ content: SecretBytes, _ gate: LockGate) throws(StoreError) {
        self.content = Mutex(content)
        self.gate = gate
        cache = try BlockCache(capacity: 4096, blockSize: 4096)
    }

    private func admit() throws(StoreError) {
        if gate.isUnlocked() { return }
        counters.refusedRequests.count()
        throw gate.refusal
    }

    func attributes(_ id: NodeID) throws(StoreError) -> stat {
        var status = stat()
        (status.st_ino, status.st_nlink, status.st_mode) = (ino_t(id.rawValue), 1, S_IFDIR | 0o500)
        (status.st_uid, status.st_gid) = (getuid(), getgid())
        // The root replies while it is locked too, because programs check mountpoints.
        if id == .root { return status }
        try admit()
        status.st_mode = S_IFREG | 0o400
        status.st_size = off_t(content.withLock { $0?.count ?? 0 })
        return status
    }

    func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        try admit()
        guard name == Array("secret".utf8) else { throw .system(.noSuchFileOrDirectory) }
        return NodeEntry(id: Self.file, attributes: try attributes(Self.file))
    }

    func list(
        _ handle: Listing, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try admit()
        for (index, (name, id)) in Self.entries.enumerated().dropFirst(max(0, Int(offset))) {
            var listed = ListedEntry(
                name: Array(name.utf8), attributes: try attributes(id), nextOffset: Int64(index) + 1)
            listed.id = withAttributes && id == Self.file ? id : nil
            if !accept(listed) { return }
        }
    }

    func beginOpening(
        _ id: NodeID, flags: Int32, for caller: Caller, workspace: ReplyBuffer
    ) throws(StoreError) -> Opening<Handle> {
        try admit()
        handles.add(1, ordering: .relaxed)
        return .opened(Handle())
    }

    func read(
        _ handle: Handle, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: ReplyBuffer
    ) throws(StoreError) -> Int {
        try admit()
        return content.withLock { content in
            guard let content, offset < content.count else { return 0 }
            return content.withUnsafeBytes { bytes in
                let part = UnsafeRawBufferPointer(rebasing: bytes[Int(offset)...].prefix(buffer.count))
                buffer.copyMemory(from: part)
                return part.count
            }
        }
    }

    var ownsSource: Bool { true }
    /// The kernel keeps no pages, so a lock has none to drop.
    func pageCaching(of handle: Handle) -> PageCaching { .bypass }
    func release(_ handle: Handle) { handles.subtract(1, ordering: .relaxed) }
    func openDirectory(_ id: NodeID) -> Listing { Listing() }
    func release(_ handle: Listing) {}
    func forget(_ id: NodeID, count: UInt64) {}
    func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] { throw .system(.invalidArgument) }
    func seek(_ handle: Handle, from offset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        throw .system(.noFunction)
    }
    func space() -> statvfs {
        var space = statvfs()
        (space.f_bsize, space.f_frsize, space.f_namemax) = (4096, 4096, 255)
        return space
    }
    func statistics() -> Statistics { Statistics(counters, cache: cache, nodes: 2) }
    func openInodes() -> [UInt64] { [] }
    func makeWorkspace() -> ReplyBuffer { ReplyBuffer() }
    func shutDown() { _ = forgetKeys(everything: true) }
}

extension SecretFile {
    var openHandles: Int { handles.load(ordering: .relaxed) }
    var presentKeys: [String] { content.withLock { $0 == nil ? [] : ["secret"] } }
    var needsSecret: Bool { true }

    func setLockController(_ controller: LockController) {}
    func inodesToDrop() -> [UInt64] { [Self.file.rawValue] }
    func knownNames() -> [KnownName] { [KnownName(parent: NodeID.root.rawValue, name: Array("secret".utf8))] }

    func forgetKeys(everything: Bool) -> [String] {
        let present = presentKeys
        content.withLock { content in
            content?.forget()
            content = nil
        }
        return present
    }

    func restoreKeys(_ secret: SecretBytes?) {
        guard let secret else { return }
        content.withLock { $0 = secret.subrange(0..<secret.count) }
    }
}

final class Handle: OpenFile {
    let sequence = ReadSequence()
}

final class Listing: Sendable {}

final class ReplyBuffer: WorkerBuffers {
    /// The kernel's longest read fits.
    let reply = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)

    deinit { reply.deallocate() }

    func wipe() { reply.initializeMemory(as: UInt8.self, repeating: 0) }
}

struct OpenedSecret: OpenedSource {
    let file: SecretFile
    var fileSystem: any LockableFileSystem { file }

    func secretSource(_ secret: ClientSecret) -> LockController.SecretSource { { UnlockSecret(secret.bytes) } }
}

/// `secret-file MOUNTPOINT <FILE`: the mounted thing has no settings.
@main
struct SecretMount: MountSource {
    static let version = "1"
    var command: String { "secret-file" }

    func open(
        _ request: MountRequest, secret: SecretBytes, logger: Logger, report: @escaping @Sendable (String) -> Void
    ) throws -> any OpenedSource {
        let content = secret.subrange(0..<secret.count)
        secret.forget()
        return OpenedSecret(file: try SecretFile(content, LockGate(request.lock)))
    }

    static func main() {
        ProcessSetup.begin()
        let arguments = CommandLine.arguments
        if arguments.count > 1, arguments[1] == DaemonLaunch.argument { DaemonLaunch.serve(Self.self) }
        do {
            guard arguments.count == 2 else {
                throw MountError(.failure, reason: "usage: secret-file MOUNTPOINT <FILE")
            }
            try mount(on: FilePath(arguments[1]))
        } catch {
            let failure = failure(error)
            try? writeAll(Array("secret-file: \(failure.message)\n".utf8), to: STDERR_FILENO)
            exit(failure.exitCode)
        }
    }

    private static func mount(on path: FilePath) throws {
        ProcessSetup.protectMemory()
        var options = ServingOptions()
        let mountpoint = try Mountpoint.check(path, source: "secret", root: nil, options, isMade: true)
        mountpoint.apply(to: &options)
        let request = MountRequest(source: "/dev/stdin", mountpoint: mountpoint.path, options: options)
        let given = WipedBytes(capacity: 4096)
        let fill = { (rest: UnsafeMutableRawBufferPointer) throws(StoreError) in
            try retrying { read(STDIN_FILENO, rest.baseAddress, rest.count) }
        }
        while try given.fill(fill) > 0 {}
        if given.isFull { throw MountError(.failure, reason: "the secret has 4096 bytes or more") }
        let secret = given.withBytes { $0.withBytes { SecretBytes(copying: $0) } }
        _ = try Mountpoint.use(mountpoint) { directory in
            try DaemonLaunch.run(request, Self(), on: directory, secret: secret, inForeground: false)
        }
    }
}
