import DiskSimulation
import FileSystem
import Glibc
import TestSupport

@testable import VaultFileSystem

/// Operations on names.
extension CutWorkload {
    var files: [String] { model.entries.filter { $0.value != nil }.keys.sorted() }

    /// The files with changeable names. While locked, only the arrivals, and their content cannot be opened.
    private var changeable: [String] {
        guard let arrived else { return files }
        return files.filter { path in arrived.contains { $0 === file(path) } }
    }

    func file(_ path: String) -> FileModel? { model.entries[path].flatMap(\.self) }

    func name(_ file: FileModel) -> String { files.first { self.file($0) === file } ?? "removed" }

    private func split(_ path: String) throws -> (parent: NodeID, name: [UInt8]) {
        let directory = CutModel.parent(path)
        if directory.isEmpty { return (.root, ascii(path)) }
        return (try system.lookUp(ascii(directory), in: .root).id, ascii(String(path.dropFirst(directory.count + 1))))
    }

    private func newPath() -> String {
        let directories = model.entries.filter { $0.value == nil }.keys.sorted() + ["", "", ""]
        let directory = directories[random.below(directories.count)]
        // The longest name gets a sidecar.
        let name = random.below(8) == 0 ? String(repeating: "l", count: 200) : "f\(random.below(8))"
        return directory.isEmpty ? name : directory + "/" + name
    }

    func create() throws {
        let path = newPath()
        guard files.count < (arrived == nil ? 7 : 12), model.entries[path] == nil else { return }
        try create(path)
    }

    func create(_ path: String) throws {
        let (parent, name) = try split(path)
        let isDurable = random.below(10) == 0
        var handle: FileHandle?
        let span = try perform("create \(path)") {
            let flags = isDurable ? O_RDWR | O_DSYNC : O_RDWR
            handle = try system.create(name, in: parent, mode: 0o644, flags: flags, for: caller).handle
        }
        let file = FileModel(chunkSize: chunkSize, span)
        model.create(path, file, span)
        arrived?.append(file)
        if let handle { open.append((file, handle, isDurable)) }
    }

    func openFile() throws {
        if arrived != nil { return try create() }
        guard let path = files.isEmpty ? nil : files[random.below(files.count)], let file = file(path) else { return }
        if open.count > 4 { try close(random.below(open.count)) }
        let isTruncating = random.below(6) == 0
        let isDurable = random.below(10) == 0
        let (parent, name) = try split(path)
        let span = try perform("open \(path)\(isTruncating ? " truncating" : "")") {
            let flags = O_RDWR | (isTruncating ? O_TRUNC : 0) | (isDurable ? O_DSYNC : 0)
            let id = try system.lookUp(name, in: parent).id
            open.append((file, try system.open(id, flags: flags, for: caller, workspace: workspace), isDurable))
        }
        if isTruncating { file.setLength(0, span) }
    }

    func close(_ index: Int) throws {
        let (file, handle, _) = open.remove(at: index)
        try perform("close #\(name(file))") { system.release(handle) }
    }

    /// Writes another file, syncs it and gives it the name, as editors and databases do.
    func replace() throws {
        guard let target = changeable.isEmpty ? nil : changeable[random.below(changeable.count)] else { return }
        let temporary = target + "~"
        guard model.entries[temporary] == nil else { return }
        try create(temporary)
        guard let (file, handle, isDurable) = open.last else { return }
        for _ in 0..<1 + random.below(2) {
            try write(random.bytes(size()), at: file.length, file, handle, isDurable)
        }
        let span = try perform("fsync #\(name(file))") { try system.synchronize(handle, dataOnly: false) }
        model.noteSync(of: file, at: span.returned)
        if random.below(2) == 0 { try close(open.count - 1) }
        try rename(temporary, to: target)
    }

    func rename() throws {
        guard let source = changeable.isEmpty ? nil : changeable[random.below(changeable.count)] else { return }
        let target = newPath()
        let isFree = model.entries[target] == nil || changeable.contains(target)
        if target != source, isFree { try rename(source, to: target) }
    }

    private func rename(_ source: String, to target: String) throws {
        guard let moved = file(source), moved !== file(target) else { return }
        let (parent, name) = try split(source)
        let (newParent, newName) = try split(target)
        let span = try perform("rename \(source) \(target)") {
            try system.rename(name, in: parent, to: newName, in: newParent, flags: 0, for: caller)
        }
        model.changeTree([source, target], span) { entries in
            entries[source] = nil
            entries[target] = moved
        }
    }

    func remove() throws {
        guard files.count > 1, !changeable.isEmpty else { return }
        let path = changeable[random.below(changeable.count)]
        // A checkpoint may drop the log's entries of a removed file, but must keep those of an open one.
        if random.below(2) == 0, let last = open.last(where: { $0.file === file(path) }), last.file.length > 0 {
            try write(
                random.bytes(100), at: random.below(last.file.length), last.file, last.handle, last.isDurable)
            let span = try perform("fsync #\(path)") { try system.synchronize(last.handle, dataOnly: true) }
            model.noteSync(of: last.file, at: span.returned)
        }
        while random.below(4) > 0, let index = open.firstIndex(where: { $0.file === file(path) }) { try close(index) }
        let (parent, name) = try split(path)
        let span = try perform("remove \(path)") {
            try system.remove(name, in: parent, isDirectory: false)
        }
        model.changeTree([path], span) { $0[path] = nil }
        if random.below(2) == 0 { try perform("background work") { CutVault.workInBackground(system) } }
    }

    func link() throws {
        let target = newPath()
        guard arrived == nil, model.entries[target] == nil,
            let path = files.isEmpty ? nil : files[random.below(files.count)], let file = file(path)
        else { return }
        let (parent, name) = try split(path)
        let (newParent, newName) = try split(target)
        let span = try perform("link \(path) \(target)") {
            let id = try system.lookUp(name, in: parent).id
            _ = try system.make(newName, in: newParent, .hardLink(of: id), for: caller)
        }
        model.changeTree([target], span) { $0[target] = file }
    }

    func removeDirectory(_ path: String) throws {
        guard arrived == nil, !model.entries.keys.contains(where: { $0.hasPrefix(path + "/") }) else { return }
        let span = try perform("remove directory \(path)") {
            try system.remove(ascii(path), in: .root, isDirectory: true)
        }
        model.changeTree([path], span) { $0[path] = nil }
    }

    func makeDirectory(_ path: String) throws {
        let span = try perform("directory \(path)") {
            _ = try system.make(ascii(path), in: .root, .directory(mode: 0o755), for: caller)
        }
        model.changeTree([path], span) { $0[path] = .some(nil) }
    }

    func synchronizeDirectory() throws {
        if arrived != nil { return }
        let directories = model.entries.filter { $0.value == nil }.keys.sorted() + [""]
        let path = directories[random.below(directories.count)]
        let span = try perform("fsync directory \(path)") {
            let id = path.isEmpty ? .root : try system.lookUp(ascii(path), in: .root).id
            let handle = try system.openDirectory(id)
            defer { system.release(handle) }
            try system.synchronize(handle, dataOnly: false)
        }
        model.noteSync(ofDirectory: path, at: span.returned)
    }
}
