import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Locking
import Logging
import SystemPackage
import TestSupport
import Testing
import ViewFormats

@testable import ViewFileSystem

/// The result of reading a file.
enum FoundFile: Equatable {
    case bytes([UInt8])
    /// Opening or reading has failed, with this text.
    case failed(String)
}

/// An hls view of a directory, opened as by `vaultfs export --view hls`, with every file read. Of the player's tests
/// only this code knows the view.
struct ViewTree {
    private(set) var files: [String: FoundFile] = [:]
    /// Files with different lengths in attributes and content, as `path: attributes, bytes`.
    private(set) var wrongLengths: [String] = []
    /// Files with contents that depend on the order of reads.
    private(set) var unstable: [String] = []
    /// Lines of `mount` about content left encrypted.
    let namedAtMount: [String]
    /// Lines of `export` about the same. It then exits with code 11.
    let left: [String]
    /// Lines of `status`.
    let problems: [String]
    /// Lines of `mount` about missing keys.
    let missingKeys: [String]

    /// - Parameters:
    ///   - directory: the source.
    ///   - keys: of `--key NAME=FILE`, with absolute paths.
    init(of directory: String, keys: [String: String] = [:]) throws {
        let root = Descriptor(owning: Glibc.open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        let given = Dictionary(uniqueKeysWithValues: keys.map { (Array($0.key.utf8), FilePath($0.value)) })
        let source = ViewSource(
            root: root, format: ViewFormat(layout: .hls), manifest: nil,
            keys: KeyStore(KeySources(root: root, uriFiles: given)), hasSharedKey: false)
        let system = try ViewFileSystem(
            source: source, secrets: ViewSecrets(.none, secret: nil, isLockable: false), gate: LockGate(),
            cacheSize: ViewWorkspace.pageSize, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            isMounted: false)
        defer { system.endDeferred() }
        namedAtMount = source.left.map { Self.line($0) }
        missingKeys = source.missingKeys()
        var found = Reader(system: system, workspace: try system.makeWorkspace())
        try found.read(.root, path: "")
        (files, wrongLengths, unstable) = (found.files, found.wrongLengths, found.unstable)
        left = source.left.map { Self.line($0) }
        problems = system.problems()
    }

    private static func line(_ line: (path: [UInt8], text: String)) -> String {
        "\(String(decoding: line.path, as: UTF8.self)): \(line.text)"
    }

    private struct Reader {
        let system: ViewFileSystem
        let workspace: ViewWorkspace
        var files: [String: FoundFile] = [:]
        var wrongLengths: [String] = []
        var unstable: [String] = []

        mutating func read(_ directory: NodeID, path: String) throws {
            let handle = try system.openDirectory(directory)
            defer { system.release(handle) }
            var names: [[UInt8]] = []
            try system.list(handle, from: 0, withAttributes: false) { entry in
                names.append(entry.name)
                return true
            }
            for name in names where name != Array(".".utf8) && name != Array("..".utf8) {
                let inside = path + (path.isEmpty ? "" : "/") + String(decoding: name, as: UTF8.self)
                let entry = try system.lookUp(name, in: directory)
                defer { system.forget(entry.id, count: 1) }
                if entry.attributes.st_mode & S_IFMT == S_IFDIR {
                    try read(entry.id, path: inside)
                } else {
                    files[inside] = file(entry.id, path: inside)
                    // The keys are in memory now, so a lookup shows the length without an open.
                    let again = try system.lookUp(name, in: directory)
                    defer { system.forget(again.id, count: 1) }
                    if case .bytes(let bytes) = files[inside], again.attributes.st_size != bytes.count {
                        wrongLengths.append("\(inside): \(again.attributes.st_size), \(bytes.count) bytes")
                    }
                }
            }
        }

        private mutating func file(_ id: NodeID, path: String) -> FoundFile {
            do {
                let handle = try open(id)
                defer { system.release(handle) }
                let length = Int(try system.attributes(id).st_size)
                // Read from the middle first, then everything.
                let middle = try bytes(of: handle, at: length / 2)
                let bytes = try bytes(of: handle, at: 0)
                if bytes.count != length { wrongLengths.append("\(path), open: \(length), \(bytes.count) bytes") }
                if !same(middle, bytes.dropFirst(length / 2)) { unstable.append(path) }
                return .bytes(bytes)
            } catch let error as StoreError {
                return .failed(error.reason)
            } catch {
                return .failed("\(error)")
            }
        }

        private func open(_ id: NodeID) throws(StoreError) -> ViewHandle {
            switch try system.beginOpening(
                id, flags: O_RDONLY, for: Caller(uid: geteuid(), gid: getegid()), workspace: workspace)
            {
            case .opened(let handle): handle
            case .deferred(_, let finish): try finish()
            }
        }

        private func bytes(of handle: ViewHandle, at offset: Int) throws -> [UInt8] {
            var result: [UInt8] = []
            var buffer = [UInt8](repeating: 0, count: 1 << 14)
            while true {
                let count = try buffer.withUnsafeMutableBytes { bytes in
                    try system.read(handle, at: UInt64(offset + result.count), into: bytes, workspace: workspace)
                }
                if count == 0 { return result }
                result += buffer[..<count]
            }
        }
    }
}
