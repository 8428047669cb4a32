import DiskSimulation
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import VaultFormat

@testable import VaultStore

/// Damage made after a cut to a log entry that a later entry shows to be durable (FileFormat: Log-3, Log-10).
struct LogWound {
    /// Ids of files with a lost history, because the damage includes an entry's head.
    private(set) var files: Set<UInt64> = []
    /// The damaged entry's chunks, if its head is intact. They may be unreadable, but must not be older versions.
    private(set) var lost: (file: UInt64, chunks: Range<UInt64>)?

    /// The ids of all files when the log was damaged.
    private let knownIDs: Set<UInt64>

    /// Returns true if this file's history is or may be lost: the id may be a new one (FileFormat: Header-8).
    func hidesFile(_ fileID: UInt64) -> Bool {
        files.contains(fileID) || !files.isEmpty && !knownIDs.contains(fileID)
    }

    /// Returns the chunks that may be errors in a file with this id, or nil.
    func lostChunks(_ fileID: UInt64) -> Range<UInt64>? {
        guard let lost, lost.file == fileID || !knownIDs.contains(fileID) else { return nil }
        return lost.chunks
    }

    /// Changes a byte or a sector of an entry in the vault's log. Nil if no entry is known to be durable.
    init?(_ path: String, _ vault: CutVault, seed: UInt64) throws {
        let found = try Self.entries(path, vault)
        knownIDs = try Self.fileIDs(path)
        var random = SeededGenerator(seed: seed)
        let known = found.indices.filter { index in
            found[index...].dropFirst().contains { $0.entry.durable >= found[index].entry.sequence }
        }
        guard let chosen = known.randomElement(using: &random) else { return nil }
        let entry = found[chosen].range
        let place = entry.lowerBound + random.below(entry.count)
        let damage = random.below(2) == 0 ? place..<(place + 1) : (place / 512 * 512)..<(place / 512 * 512 + 512)
        let hit = found.filter { $0.range.overlaps(damage) }
        // An intact later entry must state that all damaged ones were durable.
        let last = hit.map(\.entry.sequence).max() ?? 0
        guard found.contains(where: { !$0.range.overlaps(damage) && $0.entry.durable >= last }) else { return nil }
        if hit.count == 1, hit[0].entry.kind == .records,
            damage.lowerBound >= hit[0].range.lowerBound + LogEntry.headSize
        {
            lost = (hit[0].entry.fileID, hit[0].entry.chunks(vault.keyRing.layout))
        } else {
            files = Set(hit.map(\.entry.fileID))
        }
        var bytes = try Bytes.of(path + "/vaultfs.log")
        for position in damage.clamped(to: 0..<bytes.count) { bytes[position] ^= UInt8(1 + random.below(255)) }
        try Bytes.put(bytes, at: path + "/vaultfs.log")
    }

    /// Returns the file id in the header of a backing file, even a damaged one.
    static func fileID(of file: Descriptor) throws -> UInt64 { try StoredHeader.unprovenFileID(of: file) }

    private static func fileIDs(_ path: String) throws -> Set<UInt64> {
        var walk = BackingWalk(try Descriptor(path: FilePath(bytes: ascii(path)), flags: O_RDONLY | O_DIRECTORY))
        var ids: Set<UInt64> = []
        while let found = walk.nextEntry(onFailure: { _, _, _ in }) {
            guard found.status.st_mode & S_IFMT == S_IFREG else { continue }
            ids.insert(try fileID(of: Descriptor(at: found.directory, found.entry, flags: O_RDONLY)))
        }
        return ids
    }

    private struct Found {
        let entry: LogEntry
        let range: Range<Int>
    }

    private static func entries(_ path: String, _ vault: CutVault) throws -> [Found] {
        let root = try Descriptor(path: FilePath(bytes: ascii(path)), flags: O_RDONLY | O_DIRECTORY)
        guard let (log, headers) = try RedoLog.openToRead(root), let header = headers.first else { return [] }
        var reader = try LogReader(log, header, keys: vault.keyRing.currentLogKeys, vault.keyRing.layout)
        var found: [Found] = []
        var (sequence, offset) = (header.startSequence, header.startOffset)
        while true {
            let next =
                try reader.entry(at: offset, sequence: sequence)
                ?? (try reader.entry(at: LogHeader.areaSize, sequence: sequence))
            guard let next, next.isWhole else { return found }
            let start = Int(next.offset)
            found.append(Found(entry: next.entry, range: start..<(start + next.entry.size)))
            sequence += 1
            offset = next.offset + next.entry.space
        }
    }
}
