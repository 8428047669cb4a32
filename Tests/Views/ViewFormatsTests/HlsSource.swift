import Foundation
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import ViewFormats

/// A source directory with its index.
final class HlsSource: Sendable {
    // Kept only because it removes the directory at its end.
    nonisolated(unsafe) private let directory: TemporaryDirectory
    let path: String
    let index: HlsIndex
    let interruption: Interruption

    /// - Parameter files: of 64 zeros.
    init(_ files: [String] = [], maximumSegments: Int = 1000) throws {
        directory = try TemporaryDirectory()
        path = directory.appending("source")
        try Command(["mkdir", path]).run().succeeded()
        let root = Descriptor(owning: open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        interruption = Interruption()
        index = HlsIndex(
            root: root, keys: KeyStore(KeySources(root: root)), work: Mp4Work(interruption),
            maximumSegments: maximumSegments)
        try write(files)
    }

    /// Writes a new file and its directories. It replaces an existing file, also its inode.
    func write(_ name: String, _ bytes: [UInt8]) throws {
        let file = "\(path)/\(name)"
        if name.contains("/") {
            try Command(["mkdir", "-p", String(file[..<(file.lastIndex(of: "/") ?? file.startIndex)])]).run()
                .succeeded()
        }
        let descriptor = Descriptor(owning: open(file + ".new", O_WRONLY | O_CREAT | O_TRUNC, 0o600))
        try bytes.withUnsafeBytes { try descriptor.write($0, at: 0) }
        guard rename(file + ".new", file) == 0 else { throw TestFailure("rename to \(file): errno \(errno)") }
    }

    /// Writes files of 64 zeros.
    func write(_ names: [String]) throws {
        for name in names { try write(name, Array(repeating: 0, count: 64)) }
    }

    func run(_ command: String) throws {
        try Command(["sh", "-ec", "cd \"$0\"\n\(command)", path]).run().succeeded()
    }

    func identity(_ name: String) throws -> FileIdentity {
        FileIdentity(try status(name))
    }

    func status(_ name: String) throws -> stat {
        var status = stat()
        guard stat("\(path)/\(name)", &status) == 0 else { throw TestFailure("stat \(name): errno \(errno)") }
        return status
    }

    /// Returns the kind and content of a file, as text.
    func content(_ name: String) throws -> String {
        let status = try status(name)
        switch index.decision(on: FileIdentity(status), size: UInt64(status.st_size), path: Array(name.utf8)) {
        case .clear, .asItIs, .left: return "plain"
        case .playlist(let size): return "playlist \(size.map { "\($0)" } ?? "?")"
        case .chains(let segment):
            return segment.parts.map { part in
                guard case .uri(let uri, let directory, _) = part.encryption.key else { return "\(part)" }
                let name = "\(String(decoding: directory, as: UTF8.self)):\(String(decoding: uri, as: UTF8.self))"
                return "\(part.bytes.map { "\($0) " } ?? "")\(name) \(hex(part.encryption.vector))"
            }.joined(separator: ", ")
        case .samples(let samples):
            let uri = samples.uri.map { String(decoding: $0, as: UTF8.self) } ?? (samples.hasKey ? "several" : "none")
            return "samples \(uri)" + (samples.initial.map { " \(String(decoding: $0.path, as: UTF8.self))" } ?? "")
        case .refused(.malformed(let text)): return "malformed: \(text)"
        case .refused(let error): return "\(error)"
        }
    }

    /// Returns the text that the mount shows, unless byte ranges change. Its length is the size in a listing.
    func rendered(_ name: String) throws -> String {
        guard let content = try index.open(Array(name.utf8)) else { throw TestFailure("\(name) is no playlist") }
        let text = try content.rendered { (_, range) in range }
        #expect(try self.content(name) == "playlist \(text.count)")
        return String(decoding: text, as: UTF8.self)
    }

    func text(_ name: String) throws -> String { try String(contentsOfFile: "\(path)/\(name)", encoding: .utf8) }

    func problems() -> [String] { index.problems() }
}
