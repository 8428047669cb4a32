import CLinux
import DiskSimulation
import FileSystem
import Glibc
import LinuxSystem
import TestSupport
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// Random operations of programs on a mounted vault, recorded together with the calls that the store makes for them.
final class CutWorkload {
    private typealias Open = (file: CutFile, handle: FileHandle, isDurable: Bool)

    private let vault: CutVault
    private let path: String
    private var system: VaultFileSystem
    private let workspace: Workspace
    private var random: SeededGenerator
    private let caller = Caller(uid: geteuid(), gid: getegid())
    private var open: [Open] = []
    private var record: DiskRecord?
    private(set) var model = CutModel()
    private var chunkSize: Int { vault.chunkSize }

    /// Makes a vault with some files, and ends its mount.
    init(_ vault: CutVault, at path: String, seed: UInt64) throws {
        self.vault = vault
        self.path = path
        random = SeededGenerator(seed: seed)
        try vault.create(at: path)
        system = try vault.mount(path)
        workspace = try Workspace(layout: vault.keyRing.layout)
        try makeDirectory("d")
        for _ in 0..<2 + random.below(3) { try create() }
        for _ in 0..<random.below(8) { try changeFile() }
        try end()
        model = model.settled()
    }

    /// Mounts the vault and records random operations.
    func run(steps: Int) throws -> DiskRecord {
        let record = try DiskRecord(of: path)
        self.record = record
        defer {
            record.stop()
            // Files that wait to be sealed would keep the store, and its descriptors.
            system.shutDown()
        }
        try perform("mount") { system = try vault.mount(path) }
        for _ in 0..<steps { try step() }
        if random.below(3) == 0 { try end() }
        open = []
        return record
    }

    private func step() throws {
        switch random.below(100) {
        case 0..<60: try changeFile()
        case 60..<74: try synchronize()
        case 74..<78: try openFile()
        case 78..<82: if !open.isEmpty { try close(random.below(open.count)) }
        case 82..<86: try create()
        case 86..<89: try replace()
        case 89..<91: try rename()
        case 91..<93: try remove()
        case 93..<94: try link()
        case 94..<95:
            let path = "d\(random.below(3))"
            if model.entries[path] == nil { try makeDirectory(path) } else { try removeDirectory(path) }
        case 95..<98: try perform("round of the sealer") { system.store.sealer.sealAll() }
        case 98..<99: try synchronizeDirectory()
        default: if random.below(3) == 0 { try remount() }
        }
    }

    @discardableResult
    private func perform(_ text: String, _ body: () throws -> Void) throws -> CutSpan {
        let begun = record?.count ?? 0
        do { try body() } catch { throw TestFailure("\(text): \(error)") }
        let span = CutSpan(begun: begun, returned: record?.count ?? 0)
        model.operations.append((text, span))
        return span
    }

    // MARK: Content

    private func place(_ length: Int) -> Int {
        let c = chunkSize
        let places = [0, 1, c - 1, c, c + 1, 2 * c, 2 * c + 500, length, length, length, max(0, length - 1)]
        return random.below(3) == 0 ? random.below(c > 1 << 17 ? 2 * c : 6 * c) : places[random.below(places.count)]
    }

    private func size() -> Int {
        let c = chunkSize
        let sizes = [1, 15, 100, 100, 500, 1000, 1000, c - 1, c, c, c + 1, 2 * c, 2 * c + 500]
        return random.below(60) == 0 && c == 4096 ? 40 * c : sizes[random.below(sizes.count)]
    }

    private func changeFile() throws {
        guard !open.isEmpty else { return try openFile() }
        let (file, handle, isDurable) = open[random.below(open.count)]
        let latest = file.latest
        let isLarge = latest.length > max(1 << 19, 4 * chunkSize)
        let start = place(latest.length)
        let range = start..<(start + size())
        switch random.below(100) {
        case 0..<70 where !isLarge:
            try write(random.bytes(range.count), at: random.below(4) == 0 ? latest.length : start, file, handle, isDurable)
        case 70..<80: try setLength(isLarge ? start : min(start, latest.length + chunkSize), file, handle)
        case 80..<82 where !isLarge && chunkSize < 1 << 17: try setLength(latest.length + (1 << 20) + start, file, handle)
        case 82..<90: try punch(range, file, handle, zeroing: false)
        case 90..<94: try punch(range, file, handle, zeroing: true)
        case 94..<97 where !isLarge: try allocate(range, file, handle)
        default: if isLarge { try setLength(start, file, handle) }
        }
    }

    private func write(_ bytes: [UInt8], at offset: Int, _ file: CutFile, _ handle: FileHandle, _ isDurable: Bool) throws {
        let span = try perform("write #\(name(file)) \(offset)..<\(offset + bytes.count)") {
            var done = 0
            while done < bytes.count {
                done += try bytes.withUnsafeBytes {
                    try system.write(
                        handle, UnsafeRawBufferPointer(rebasing: $0[done...]), at: UInt64(offset + done),
                        workspace: workspace)
                }
            }
        }
        if offset > file.latest.length { grow(file, to: offset, span) }
        var version = file.latest
        version.resize(to: max(version.length, offset + bytes.count), chunkSize: chunkSize)
        version.write(bytes, at: offset, chunkSize: chunkSize)
        file.add(version, span)
        if isDurable { model.noteSync(of: file, at: span.returned) }
    }

    /// Adds the versions with zeros at the end. Up to 1 MiB they are written in pieces, each of which makes the file longer.
    /// From 1 MiB on they are a hole, which begins at a chunk.
    private func grow(_ file: CutFile, to length: Int, _ span: CutSpan) {
        var version = file.latest
        let isHole = length - version.length >= 1 << 20
        let end = isHole ? (version.length + chunkSize - 1) / chunkSize * chunkSize : length
        for next in Array(stride(from: version.length + (128 << 10), to: end, by: 128 << 10)) + [end, length] {
            if isHole { version.hasHoles = true }
            version.resize(to: next, chunkSize: chunkSize)
            file.add(version, span)
        }
    }

    private func setLength(_ length: Int, _ file: CutFile, _ handle: FileHandle) throws {
        let span = try perform("length #\(name(file)) \(length)") {
            try handle.file.setLength(UInt64(length), workspace: workspace)
        }
        shrinkOrGrow(file, to: length, span)
    }

    private func shrinkOrGrow(_ file: CutFile, to length: Int, _ span: CutSpan) {
        if length > file.latest.length { return grow(file, to: length, span) }
        var version = file.latest
        version.resize(to: length, chunkSize: chunkSize)
        file.add(version, span)
        if length == 0 {
            version.hasHoles = false
            file.add(version, span)
        }
    }

    private func punch(_ range: Range<Int>, _ file: CutFile, _ handle: FileHandle, zeroing: Bool) throws {
        let keepsSize = !zeroing || random.below(2) == 0
        let mode = zeroing ? linux_FALLOC_FL_ZERO_RANGE : linux_FALLOC_FL_PUNCH_HOLE
        let span = try perform("\(zeroing ? "zero" : "punch") #\(name(file)) \(range) \(keepsSize)") {
            try system.allocate(
                handle, mode: mode | (keepsSize ? linux_FALLOC_FL_KEEP_SIZE : 0), range: unsigned(range),
                workspace: workspace)
        }
        let inside = range.clamped(to: 0..<file.latest.length)
        if !inside.isEmpty {
            var version = file.latest
            version.hasHoles = true
            version.write([UInt8](repeating: 0, count: inside.count), at: inside.lowerBound, chunkSize: chunkSize)
            file.add(version, span)
        }
        if !keepsSize && range.upperBound > file.latest.length { grow(file, to: range.upperBound, span) }
    }

    private func allocate(_ range: Range<Int>, _ file: CutFile, _ handle: FileHandle) throws {
        let span = try perform("allocate #\(name(file)) \(range)") {
            try system.allocate(handle, mode: 0, range: unsigned(range), workspace: workspace)
        }
        if range.upperBound > file.latest.length { grow(file, to: range.upperBound, span) }
    }

    private func unsigned(_ range: Range<Int>) -> Range<UInt64> { UInt64(range.lowerBound)..<UInt64(range.upperBound) }

    private func synchronize() throws {
        guard !open.isEmpty else { return }
        let (file, handle, _) = open[random.below(open.count)]
        let span = try perform("fsync #\(name(file))") {
            try system.synchronize(handle, dataOnly: random.below(2) == 0)
        }
        model.noteSync(of: file, at: span.returned)
    }

    // MARK: Names

    private var files: [String] { model.entries.filter { $0.value != nil }.keys.sorted() }

    private func file(_ path: String) -> CutFile? { model.entries[path].flatMap(\.self) }

    private func name(_ file: CutFile) -> String { files.first { self.file($0) === file } ?? "removed" }

    private func split(_ path: String) throws -> (parent: NodeID, name: [UInt8]) {
        let directory = CutModel.parent(path)
        if directory.isEmpty { return (.root, ascii(path)) }
        return (try system.lookUp(ascii(directory), in: .root).id, ascii(String(path.dropFirst(directory.count + 1))))
    }

    private func newPath() -> String {
        let directories = model.entries.filter { $0.value == nil }.keys.sorted() + ["", "", ""]
        let directory = directories[random.below(directories.count)]
        // The longest has a sidecar.
        let name = random.below(8) == 0 ? String(repeating: "l", count: 200) : "f\(random.below(8))"
        return directory.isEmpty ? name : directory + "/" + name
    }

    private func create() throws {
        let path = newPath()
        guard files.count < 7, model.entries[path] == nil else { return }
        try create(path)
    }

    private func create(_ path: String) throws {
        let (parent, name) = try split(path)
        let isDurable = random.below(10) == 0
        var handle: FileHandle?
        let span = try perform("create \(path)") {
            let flags = isDurable ? O_RDWR | O_DSYNC : O_RDWR
            handle = try system.create(name, in: parent, mode: 0o644, flags: flags, for: caller).handle
        }
        let file = CutFile(namedIn: model.trees.count, begun: span.begun, returned: span.returned)
        model.changeTree([path], span) { $0[path] = file }
        if let handle { open.append((file, handle, isDurable)) }
    }

    private func openFile() throws {
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
        if isTruncating { shrinkOrGrow(file, to: 0, span) }
    }

    private func close(_ index: Int) throws {
        let (file, handle, _) = open.remove(at: index)
        try perform("close #\(name(file))") { system.release(handle) }
    }

    /// As editors and databases do: writes another file, syncs it and gives it the name.
    private func replace() throws {
        guard let target = files.isEmpty ? nil : files[random.below(files.count)] else { return }
        let temporary = target + "~"
        guard model.entries[temporary] == nil else { return }
        try create(temporary)
        guard let (file, handle, isDurable) = open.last else { return }
        for _ in 0..<1 + random.below(2) {
            try write(random.bytes(size()), at: file.latest.length, file, handle, isDurable)
        }
        let span = try perform("fsync #\(name(file))") { try system.synchronize(handle, dataOnly: false) }
        model.noteSync(of: file, at: span.returned)
        if random.below(2) == 0 { try close(open.count - 1) }
        try rename(temporary, to: target)
    }

    private func rename() throws {
        guard let source = files.isEmpty ? nil : files[random.below(files.count)] else { return }
        let target = newPath()
        if target != source, model.entries[target] == nil || file(target) != nil { try rename(source, to: target) }
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

    private func remove() throws {
        guard let path = files.count < 2 ? nil : files[random.below(files.count)] else { return }
        let (parent, name) = try split(path)
        let span = try perform("remove \(path)") {
            try system.remove(name, in: parent, isDirectory: false)
        }
        model.changeTree([path], span) { $0[path] = nil }
    }

    private func link() throws {
        let target = newPath()
        guard let path = files.isEmpty ? nil : files[random.below(files.count)], let file = file(path),
            model.entries[target] == nil
        else { return }
        let (parent, name) = try split(path)
        let (newParent, newName) = try split(target)
        let span = try perform("link \(path) \(target)") {
            let id = try system.lookUp(name, in: parent).id
            _ = try system.make(newName, in: newParent, .hardLink(of: id), for: caller)
        }
        model.changeTree([target], span) { $0[target] = file }
    }

    private func removeDirectory(_ path: String) throws {
        guard !model.entries.keys.contains(where: { $0.hasPrefix(path + "/") }) else { return }
        let span = try perform("remove directory \(path)") {
            try system.remove(ascii(path), in: .root, isDirectory: true)
        }
        model.changeTree([path], span) { $0[path] = nil }
    }

    private func makeDirectory(_ path: String) throws {
        let span = try perform("directory \(path)") {
            _ = try system.make(ascii(path), in: .root, .directory(mode: 0o755), for: caller)
        }
        model.changeTree([path], span) { $0[path] = .some(nil) }
    }

    private func synchronizeDirectory() throws {
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

    // MARK: Mounts

    private func end() throws {
        let span = try perform("unmount") {
            for (_, handle, _) in open { system.release(handle) }
            open = []
            system.shutDown()
        }
        model.noteEnd(at: span.returned)
    }

    private func remount() throws {
        try end()
        try perform("mount") { system = try vault.mount(path) }
    }
}
