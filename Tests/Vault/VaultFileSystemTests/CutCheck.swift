import DiskSimulation
import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import VaultStore

@testable import VaultFileSystem

/// A difference between the state after a cut and every state allowed by the guarantee.
struct CutProblem: CustomStringConvertible {
    enum Kind: String {
        case mount, names, open, read, content, use, verify, silence
    }

    let kind: Kind
    let text: String

    var description: String { "\(kind): \(text)" }
}

/// Mounts a vault as a cut has left it, and compares it with the model.
struct CutCheck {
    let vault: CutVault
    let model: CutModel
    let workspace: Workspace
    private var caller: Caller { Caller(uid: geteuid(), gid: getegid()) }

    init(_ vault: CutVault, _ model: CutModel) throws {
        (self.vault, self.model) = (vault, model)
        workspace = try Workspace(layout: vault.keyRing.layout)
    }

    /// Checks the vault at `path`.
    /// - Parameters:
    ///   - isUsed: the vault is also written, unmounted and verified.
    ///   - wound: damage made to the log after the cut.
    func problems(_ path: String, _ cut: Cut, isUsed: Bool, _ wound: LogWound? = nil) throws -> [CutProblem] {
        var random = SeededGenerator(seed: ~cut.seed)
        do {
            var written: [String: [UInt8]] = [:]
            let problems = try mounted(path) { system -> [CutProblem] in
                let completesFirst = random.below(2) == 0
                if completesFirst { system.completeEverything() }
                var found = try list(system)
                if wound != nil {
                    // The damaged log is kept there.
                    found = found.filter { !$0.key.hasPrefix("lost+found") }
                }
                let isWriting = random.below(2) == 0
                var problems = compare(found, cut, system, isWriting: isWriting, wound)
                if wound != nil && system.store.problems.isEmpty {
                    problems.append(CutProblem(kind: .silence, text: "nothing reports the damaged log"))
                }
                if !completesFirst { system.completeEverything() }
                if problems.isEmpty && isUsed { written = try use(found, system, &random) }
                return problems
            }
            guard problems.isEmpty, isUsed else { return problems }
            let damage = try vault.damage(path).map { CutProblem(kind: .verify, text: $0) }
            return try damage
                + mounted(path) { system in
                    let found = try list(system)
                    return try written.filter { try contents(found[$0.key], system, O_RDONLY) != $0.value }.map {
                        CutProblem(kind: .use, text: "\($0.key) is not what was written after the cut")
                    }
                }
        } catch {
            return [CutProblem(kind: .mount, text: "\(error)")]
        }
    }

    /// Mounts the vault for `body` and ends the mount. Otherwise files awaiting their seal would keep the store.
    private func mounted<Result>(_ path: String, _ body: (VaultFileSystem) throws -> Result) throws -> Result {
        let system = try vault.mount(path)
        defer { system.shutDown() }
        return try body(system)
    }

    // MARK: Names

    /// Returns paths and file types. A directory's id is nil.
    private func list(_ system: VaultFileSystem) throws -> [String: FoundFile?] {
        var found: [String: FoundFile?] = [:]
        try list("", .root, system, &found)
        return found
    }

    /// The name under which a file is found.
    private struct FoundFile {
        let directory: String
        let name: [UInt8]
    }

    private func list(
        _ path: String, _ id: NodeID, _ system: VaultFileSystem, _ found: inout [String: FoundFile?]
    ) throws {
        var entries: [(name: [UInt8], isDirectory: Bool)] = []
        let handle = try system.openDirectory(id)
        defer { system.release(handle) }
        try system.list(handle, from: 0, withAttributes: false) { entry in
            entries.append((entry.name, entry.attributes.st_mode & S_IFMT == S_IFDIR))
            return true
        }
        for (name, isDirectory) in entries where name != ascii(".") && name != ascii("..") {
            let inner = path + (path.isEmpty ? "" : "/") + String(decoding: name, as: UTF8.self)
            found[inner] = .some(isDirectory ? nil : FoundFile(directory: path, name: name))
            if isDirectory { try list(inner, try system.lookUp(name, in: id).id, system, &found) }
        }
    }

    private func compare(
        _ found: [String: FoundFile?], _ cut: Cut, _ system: VaultFileSystem, isWriting: Bool, _ wound: LogWound?
    ) -> [CutProblem] {
        let window = model.window(cut)
        let names = Set(found.keys)
        let trees = model.trees[window].filter { Set($0.entries.keys) == names }
        let contents = found.compactMapValues { file in
            file.map { content($0, system, isWriting ? O_RDWR : O_RDONLY, wound) }
        }
        let problems = trees.reversed().map { tree in
            tree.entries.sorted { $0.key < $1.key }.flatMap { name, file -> [CutProblem] in
                guard let file, let result = contents[name] else { return [] }
                switch result {
                case .success(nil): return []
                case .success(let content?):
                    let window = file.window(before: cut.call, isKill: cut.isKill)
                    return file.differences(of: content.bytes, in: window, lost: content.lost).map {
                        CutProblem(kind: .content, text: "\(name): \($0)")
                    }
                case .failure(let failure): return [CutProblem(kind: failure.kind, text: "\(name): \(failure.text)")]
                }
            }
        }
        // Several trees may have these names, so report the problems of the best match.
        return problems.min { $0.count < $1.count }
            ?? [CutProblem(kind: .names, text: "\(names.sorted()) is no tree of \(window)")]
    }

    // MARK: Contents

    /// The content of a file. `lost` names the unreadable chunks, if they may be unreadable.
    private struct Content {
        var bytes: [UInt8]
        var lost: Range<Int> = 0..<0
    }

    /// Returns the content, or nil for a file with a lost history.
    private func content(
        _ file: FoundFile, _ system: VaultFileSystem, _ flags: Int32, _ wound: LogWound?
    ) -> Result<Content?, CutProblem.Failure> {
        var kind = CutProblem.Kind.open
        do {
            // Read the id before the open, because the first writer may give the file another.
            let fileID = try fileID(file, system)
            if let wound, wound.hidesFile(fileID) { return .success(nil) }
            let handle = try open(file, system, flags)
            defer { system.release(handle) }
            kind = .read
            guard let lost = wound?.lostChunks(fileID) else {
                return .success(Content(bytes: try read(handle, system)))
            }
            // The same cut may have torn another chunk, which is an error because a lost chunk follows it.
            return .success(try? readAround(lost, handle, system))
        } catch {
            return .failure(CutProblem.Failure(kind: kind, text: "\(error)"))
        }
    }

    private func fileID(_ file: FoundFile, _ system: VaultFileSystem) throws -> UInt64 {
        let parent = file.directory.isEmpty ? .root : try system.lookUp(ascii(file.directory), in: .root).id
        let node = try system.nodes.node(system.lookUp(file.name, in: parent).id)
        return try LogWound.fileID(of: system.pin(node).reopened(flags: O_RDONLY))
    }

    /// Reads a file, with zeros for the chunks in `chunks` if they are lost.
    private func readAround(
        _ chunks: Range<UInt64>, _ handle: FileHandle, _ system: VaultFileSystem
    ) throws -> Content {
        let length = Int(handle.file.length)
        let range = (Int(chunks.lowerBound) * vault.chunkSize)..<(Int(chunks.upperBound) * vault.chunkSize)
        let hole = range.clamped(to: 0..<length)
        do { return Content(bytes: try read(handle, system)) } catch {
            var bytes: [UInt8] = []
            for part in [0..<hole.lowerBound, hole.upperBound..<length] {
                bytes += [UInt8](repeating: 0, count: part.lowerBound - bytes.count)
                while bytes.count < part.upperBound {
                    let rest = UnsafeMutableRawBufferPointer(
                        rebasing: workspace.reply[..<min(workspace.reply.count, part.upperBound - bytes.count)])
                    let count = try system.read(handle, at: UInt64(bytes.count), into: rest, workspace: workspace)
                    guard count > 0 else { throw TestFailure("ends at \(bytes.count) of \(length)") }
                    bytes += rest[..<count]
                }
            }
            return Content(bytes: bytes, lost: Int(chunks.lowerBound)..<Int(chunks.upperBound))
        }
    }

    private func contents(_ file: FoundFile??, _ system: VaultFileSystem, _ flags: Int32) throws -> [UInt8]? {
        guard let file = file.flatMap(\.self) else { return nil }
        let handle = try open(file, system, flags)
        defer { system.release(handle) }
        return try read(handle, system)
    }

    private func open(_ file: FoundFile, _ system: VaultFileSystem, _ flags: Int32) throws -> FileHandle {
        let parent = file.directory.isEmpty ? .root : try system.lookUp(ascii(file.directory), in: .root).id
        let once = { () throws -> FileHandle in
            let id = try system.lookUp(file.name, in: parent).id
            return try system.open(id, flags: flags, for: caller, workspace: workspace)
        }
        // On ESTALE, look the file up again, once, as the kernel does.
        do { return try once() } catch StoreError.system(.staleNFSFileHandle) { return try once() }
    }

    private func read(_ handle: FileHandle, _ system: VaultFileSystem) throws -> [UInt8] {
        let length = Int(handle.file.length)
        let shown = try system.attributes(system.nodes.id(of: handle.node)).st_size
        guard Int(shown) == length else { throw TestFailure("stat shows \(shown) bytes of \(length)") }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(length)
        while bytes.count < length {
            do {
                let count = try system.read(
                    handle, at: UInt64(bytes.count), into: workspace.reply, workspace: workspace)
                guard count > 0 else { throw TestFailure("ends at \(bytes.count) of \(length)") }
                bytes += workspace.reply[..<count]
            } catch {
                throw TestFailure("\(error), of \(length) bytes")
            }
        }
        return bytes
    }

    private func write(_ data: [UInt8], at offset: Int, _ handle: FileHandle, _ system: VaultFileSystem) throws {
        var done = 0
        while done < data.count {
            done += try data.withUnsafeBytes {
                try system.write(
                    handle, UnsafeRawBufferPointer(rebasing: $0[done...]), at: UInt64(offset + done),
                    workspace: workspace)
            }
        }
    }

    // MARK: Use after the cut

    /// Writes to each file and returns the expected contents.
    private func use(
        _ found: [String: FoundFile?], _ system: VaultFileSystem, _ random: inout SeededGenerator
    ) throws -> [String: [UInt8]] {
        var written: [String: [UInt8]] = [:]
        var seen: Set<UInt64> = []
        for (name, file) in found.sorted(by: { $0.key < $1.key }) {
            guard let file else { continue }
            let handle = try open(file, system, O_RDWR)
            defer { system.release(handle) }
            // A file with several names is written under the first only.
            guard seen.insert(handle.file.fileID).inserted else { continue }
            var bytes = try read(handle, system)
            let data = random.bytes(1 + random.below(6000))
            let offset = random.below(2) == 0 ? bytes.count : random.below(bytes.count + 1)
            try write(data, at: offset, handle, system)
            bytes.replaceSubrange(offset..<min(bytes.count, offset + data.count), with: data)
            guard try read(handle, system) == bytes else {
                throw TestFailure("\(name) cannot be written after the cut")
            }
            written[name] = bytes
        }
        return written
    }
}

extension CutProblem {
    /// The reason why a file could not be read.
    struct Failure: Error {
        let kind: Kind
        let text: String
    }
}
