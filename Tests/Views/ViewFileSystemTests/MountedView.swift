import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Locking
import Logging
import TestSupport
import Testing
import VaultCrypto
import ViewFormats

@testable import ViewFileSystem

/// Files of `openssl enc -aes-128-cbc`, and the view of them, driven as by a kernel.
final class MountedView {
    static let key = [UInt8](0..<16)
    static let vector = [UInt8](16..<32)

    let directory: TemporaryDirectory
    let gate = LockGate()
    let system: ViewFileSystem
    let workspace: ViewWorkspace

    /// - Parameters:
    ///   - content: of the file `f`. Nil without it.
    ///   - keyCommand: the command for each file's key. If nil, the view has one key.
    ///   - derive: the function to derive keys from salts.
    init(
        _ content: [UInt8]? = nil, keyCommand: String? = nil, derive: KeySources.Derivation? = nil,
        layout: ViewFormat.Layout = .stream(isVectorInFile: false)
    ) throws {
        directory = try TemporaryDirectory()
        let root = Descriptor(owning: Glibc.open(directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        let format = ViewFormat(layout: layout, vector: Self.vector.withUnsafeBytes { InitialVector($0) })
        let command = keyCommand.map { KeyCommand(Array($0.utf8), log: { _ in }) }
        let sources = KeySources(root: root, command: command, derive: derive)
        let key = Self.key.withUnsafeBytes { KeyMaterial(key: SecretBytes(copying: $0)) }
        let shared = keyCommand == nil ? key : nil
        let source = ViewSource(
            root: root, format: format, manifest: nil, keys: KeyStore(sources, shared: shared),
            hasSharedKey: shared != nil)
        system = try ViewFileSystem(
            source: source, secrets: ViewSecrets(.none, secret: nil), gate: gate, cacheSize: 1 << 20,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        workspace = try ViewWorkspace()
        if let content { try write(content, to: "f") }
    }

    deinit {
        system.endDeferred()
    }

    /// Encrypts `plaintext` into the file, in place.
    func write(_ plaintext: [UInt8], to name: String) throws {
        try Data(plaintext).write(to: URL(filePath: directory.appending("plain")))
        let encrypt =
            "openssl enc -aes-128-cbc -K \(Hexadecimal.encode(Self.key)) -iv \(Hexadecimal.encode(Self.vector)) "
            + "-in \(directory.appending("plain")) | cat > \(directory.appending(name)); "
            + "rm \(directory.appending("plain"))"
        try Command(["sh", "-c", encrypt]).run().succeeded()
    }

    func lookUp(_ name: String) throws -> NodeEntry { try system.lookUp(Array(name.utf8), in: .root) }

    /// Opens a file whose key is in memory.
    func open(_ id: NodeID) throws -> ViewHandle {
        guard case .opened(let handle) = try beginOpening(id) else { throw TestFailure("deferred") }
        return handle
    }

    /// Opens a file on another thread, because its key must be fetched. The result comes later.
    func openDeferred(_ id: NodeID) throws -> Monitor<Result<ViewHandle, StoreError>?> {
        guard case .deferred(_, let finish) = try beginOpening(id) else { throw TestFailure("not deferred") }
        let outcome = Monitor<Result<ViewHandle, StoreError>?>(nil)
        try BackgroundThread {
            let result = Result { () throws(StoreError) in try finish() }
            outcome.update { $0 = result }
        }.detach()
        return outcome
    }

    private func beginOpening(_ id: NodeID) throws -> Opening<ViewHandle> {
        try system.beginOpening(id, flags: O_RDONLY, for: Caller(uid: 0, gid: 0), workspace: workspace)
    }

    func read(_ handle: ViewHandle) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 1 << 17)
        let count = try bytes.withUnsafeMutableBytes { buffer in
            try system.read(handle, at: 0, into: buffer, workspace: workspace)
        }
        return Array(bytes[..<count])
    }
}
