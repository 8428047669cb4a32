import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import VaultCrypto

@testable import ViewFormats

/// A source directory for keys, and the messages about them.
final class KeyPlace: Sendable {
    /// 16 bytes in binary.
    static let key = [UInt8]("sixteen key byte".utf8)

    private let directory: Mutex<TemporaryDirectory>
    let path: String
    let root: Descriptor
    private let messages = Mutex<[String]>([])

    init() throws {
        let made = try TemporaryDirectory()
        path = made.path
        directory = Mutex(made)
        root = try Descriptor(path: FilePath(bytes: [UInt8](path.utf8)), flags: O_RDONLY | O_DIRECTORY)
    }

    var log: [String] { messages.withLock { $0 } }
    func note(_ message: String) { messages.withLock { $0.append(message) } }

    func file(_ name: String) -> FilePath { FilePath("\(path)/\(name)") }

    @discardableResult
    func write(_ name: String, _ bytes: [UInt8] = KeyPlace.key) throws -> FilePath {
        let file = try Descriptor(path: self.file(name), flags: O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
        try bytes.withUnsafeBytes { try file.write($0, at: 0) }
        return self.file(name)
    }

    func read(_ name: String) throws -> [UInt8] {
        let file = try Descriptor(path: self.file(name), flags: O_RDONLY)
        return try file.read(at: 0, count: 65536)
    }

    func makeFifo(_ name: String) throws {
        guard mkfifo("\(path)/\(name)", 0o600) == 0 else { throw TestFailure("mkfifo: errno \(errno)") }
    }

    func makeDirectory(_ name: String) throws {
        guard mkdir("\(path)/\(name)", 0o700) == 0 else { throw TestFailure("mkdir: errno \(errno)") }
    }

    func makeLink(_ name: String, to target: String) throws {
        guard symlink(target, "\(path)/\(name)") == 0 else { throw TestFailure("symlink: errno \(errno)") }
    }

    /// Opens a fifo for reading without waiting for a writer.
    func openFifo(_ name: String) throws -> Descriptor {
        try Descriptor(path: self.file(name), flags: O_RDONLY | O_NONBLOCK)
    }

    /// Returns the bytes written into the fifo until its last writer has closed it.
    func awaitEnd(of fifo: Descriptor) throws -> [UInt8] {
        guard fcntl(fifo.fd, F_SETFL, 0) == 0 else { throw TestFailure("fcntl: errno \(errno)") }
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(fifo.fd, &piece, piece.count)
            if count <= 0 { return bytes }
            bytes += piece[..<count]
        }
    }

    /// Waits until a writer has opened and closed the fifo: an event from a command.
    func awaitFifo(_ name: String) throws {
        let fd = open("\(path)/\(name)", O_RDONLY | O_CLOEXEC)
        guard fd >= 0 else { throw TestFailure("open: errno \(errno)") }
        _ = try awaitEnd(of: Descriptor(owning: fd))
    }

    /// Waits for a reader, and writes the bytes.
    func feedFifo(_ name: String, _ bytes: [UInt8]) throws {
        let fd = open("\(path)/\(name)", O_WRONLY | O_CLOEXEC)
        guard fd >= 0 else { throw TestFailure("open: errno \(errno)") }
        Glibc.write(fd, bytes, bytes.count)
        close(fd)
    }

    func command(_ text: String, limit: Duration = .seconds(60)) -> KeyCommand {
        // The command enters the directory first, so commands can use short file names.
        KeyCommand([UInt8]("cd \(path); \(text)".utf8), limit: limit) { [self] in note($0) }
    }

    func sources(
        _ uriFiles: [[UInt8]: FilePath] = [:], command: KeyCommand? = nil, derive: KeySources.Derivation? = nil
    ) -> KeySources {
        KeySources(root: root, uriFiles: uriFiles, command: command, derive: derive)
    }
}

extension SecretBytes {
    /// A copy of the bytes, for comparison.
    var exposed: [UInt8] { withUnsafeBytes { Array($0) } }
}

extension KeyMaterial {
    init(_ bytes: [UInt8]) { self.init(key: bytes.withUnsafeBytes { SecretBytes(copying: $0) }) }
}

/// Returns the reason of a `noKey` thrown by `body`. Nil for anything else, which every test refuses.
func noKeyReason(_ body: @autoclosure () throws(ViewError) -> some Any) -> String? {
    do throws(ViewError) {
        _ = try body()
        return nil
    } catch .noKey(let reason) {
        return reason
    } catch {
        return nil
    }
}
