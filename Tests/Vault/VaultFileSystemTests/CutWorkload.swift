import CLinux
import DiskSimulation
import FileSystem
import Glibc
import LinuxSystem
import TestSupport
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// Random operations of programs on a mounted vault, recorded with the store's calls for them.
final class CutWorkload {
    typealias Open = (file: FileModel, handle: FileHandle, isDurable: Bool)

    private let vault: CutVault
    private let path: String
    private(set) var system: VaultFileSystem
    let workspace: Workspace
    var random: SeededGenerator
    let caller = Caller(uid: geteuid(), gid: getegid())
    var open: [Open] = []
    private var record: DiskRecord?
    var model = CutModel()
    private var lock: CutLock?
    /// Files made during the lock. Nil while unlocked.
    var arrived: [FileModel]?
    var chunkSize: Int { vault.chunkSize }

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
            lock?.stop()
            // Otherwise files awaiting their seal would keep the store and its descriptors.
            system.shutDown()
        }
        try mount()
        defer { if arrived != nil { try? vault.keyRing.restore(masterKey: vault.masterKey) } }
        for _ in 0..<steps { try step() }
        if random.below(3) == 0 { try end() }
        open = []
        // Until it stops, the lock's thread makes calls for files closed while locked.
        lock?.stop()
        // A change by an unwatched call would be missing in the record.
        let unrecorded = try record.unrecorded()
        guard unrecorded.isEmpty else { throw TestFailure("not all changes were recorded of \(unrecorded)") }
        return record
    }

    private func step() throws {
        if vault.rootClass == .inbox && random.below(12) == 0 { return try changeLock() }
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
        case 95..<98: try perform("background work") { CutVault.workInBackground(system) }
        case 98..<99: try synchronizeDirectory()
        default: if random.below(3) == 0 { try remount() }
        }
    }

    @discardableResult
    func perform(_ text: String, _ body: () throws -> Void) throws -> FileModel.Span {
        let begun = record?.count ?? 0
        do { try body() } catch { throw TestFailure("\(text): \(error)") }
        let span = FileModel.Span(begun: begun, returned: record?.count ?? 0)
        model.operations.append((text, span))
        return span
    }

    private func offset(_ length: Int) -> Int {
        let c = chunkSize
        let offsets = [0, 1, c - 1, c, c + 1, 2 * c, 2 * c + 500, length, length, length, max(0, length - 1)]
        return random.below(3) == 0 ? random.below(c > 1 << 17 ? 2 * c : 6 * c) : offsets[random.below(offsets.count)]
    }

    func size() -> Int {
        let c = chunkSize
        let sizes = [1, 15, 100, 100, 500, 1000, 1000, c - 1, c, c, c + 1, 2 * c, 2 * c + 500]
        return random.below(60) == 0 && c == 4096 ? 40 * c : sizes[random.below(sizes.count)]
    }

    private func changeFile() throws {
        guard !open.isEmpty else { return try openFile() }
        let (file, handle, isDurable) = open[random.below(open.count)]
        let isLarge = file.length > max(1 << 19, 4 * chunkSize)
        let start = offset(file.length)
        let range = start..<(start + size())
        switch random.below(100) {
        case 0..<70 where !isLarge:
            try write(
                random.bytes(range.count), at: random.below(4) == 0 ? file.length : start, file, handle, isDurable)
        case 70..<80: try setLength(isLarge ? start : min(start, file.length + chunkSize), file, handle)
        case 80..<82 where !isLarge:
            try setLength(file.length + (1 << 20) + start, file, handle)
        case 82..<90: try punch(range, file, handle, zeroing: false)
        case 90..<94: try punch(range, file, handle, zeroing: true)
        case 94..<97 where !isLarge: try allocate(range, file, handle)
        default: if isLarge { try setLength(start, file, handle) }
        }
    }

    func write(_ bytes: [UInt8], at offset: Int, _ file: FileModel, _ handle: FileHandle, _ isDurable: Bool) throws {
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
        file.write(bytes, at: offset, span)
        if isDurable { model.noteSync(of: file, at: span.returned) }
    }

    private func setLength(_ length: Int, _ file: FileModel, _ handle: FileHandle) throws {
        let span = try perform("length #\(name(file)) \(length)") {
            try handle.file.setLength(UInt64(length), workspace: workspace)
        }
        file.setLength(length, span)
    }

    private func punch(_ range: Range<Int>, _ file: FileModel, _ handle: FileHandle, zeroing: Bool) throws {
        let keepsSize = !zeroing || random.below(2) == 0
        let mode = zeroing ? linux_FALLOC_FL_ZERO_RANGE : linux_FALLOC_FL_PUNCH_HOLE
        let span = try perform("\(zeroing ? "zero" : "punch") #\(name(file)) \(range) \(keepsSize)") {
            try system.allocate(
                handle, mode: mode | (keepsSize ? linux_FALLOC_FL_KEEP_SIZE : 0), range: unsigned(range),
                workspace: workspace)
        }
        file.clear(range, span)
        if !keepsSize && range.upperBound > file.length { file.setLength(range.upperBound, span) }
    }

    private func allocate(_ range: Range<Int>, _ file: FileModel, _ handle: FileHandle) throws {
        let span = try perform("allocate #\(name(file)) \(range)") {
            try system.allocate(handle, mode: 0, range: unsigned(range), workspace: workspace)
        }
        if range.upperBound > file.length { file.setLength(range.upperBound, span) }
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

    // MARK: Mounts

    private func end() throws {
        let span = try perform("unmount") {
            for (_, handle, _) in open { system.release(handle) }
            open = []
            lock?.stop()
            system.shutDown()
        }
        model.noteEnd(at: span.returned)
    }

    private func remount() throws {
        try end()
        if arrived != nil { try vault.keyRing.restore(masterKey: vault.masterKey) }
        try mount()
    }

    private func mount() throws {
        arrived = nil
        try perform("mount") { system = try vault.mount(path) }
        if vault.rootClass == .inbox { lock = try CutLock(system) }
    }

    private func changeLock() throws {
        if arrived == nil {
            let forgets = random.below(3) > 0
            try perform("lock\(forgets ? " --forget" : "")") { try lock?.lock(forgets: forgets) }
            arrived = []
        } else {
            try perform("unlock") { try lock?.unlock(vault.masterKey) }
            arrived = nil
        }
    }
}
