internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension VaultCreation {
    /// How every `vaultfs.json` begins.
    private static let configurationBeginning = Array("{\n  \"format\": \"vaultfs\",\n  \"version\": 1,\n".utf8)

    /// What an `init` that was killed before there was a `vaultfs.json` has left in a directory: nothing where it is empty.
    /// - Returns: nil where there is anything else: nothing of a vault that ever was one is to be taken for it.
    static func remains(in directory: Descriptor) throws(StoreError) -> [[UInt8]]? {
        // Opened anew, so that the position of the descriptor stays.
        var reader = DirectoryReader(
            try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
        var found: [[UInt8]] = []
        while let entry = try reader.next() {
            guard isRemains(entry.name, in: directory) else { return nil }
            found.append(entry.name)
        }
        // It is made first.
        return found.isEmpty || found.contains(WriterLock.entry) ? found : nil
    }

    private static func isRemains(_ entry: [UInt8], in directory: Descriptor) -> Bool {
        // Looked at before it is opened, which of a device may be felt.
        guard [.temporary, .reserved].contains(EntryName.kind(of: entry)),
            let status = try? directory.status(of: entry),
            status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1, status.st_size <= JSONParser.maximumSize,
            let file = try? Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK),
            let bytes = try? file.readToEnd(limit: JSONParser.maximumSize)
        else { return false }
        switch entry {
        // Whoever writes to a vault writes there first.
        case WriterLock.entry: return bytes.isEmpty
        case OpenDirectory.recordEntry: return (try? DirectoryRecord.parse(bytes))?.isRoot == true
        default: return isTemporary(entry) && isBeginning(bytes)
        }
    }

    /// Whether it is `vaultfs.tmp.` and up to 64 random bits, which no replacement of a `vaultfs.json` is.
    private static func isTemporary(_ entry: [UInt8]) -> Bool {
        let digits = entry.dropFirst(EntryName.temporary("").count)
        return entry.starts(with: EntryName.temporary("")) && (1...16).contains(digits.count)
            && digits.allSatisfy(Array("0123456789abcdef".utf8).contains)
    }

    /// Of a root's `vaultfs.dir`, or of a `vaultfs.json`, however little of it.
    private static func isBeginning(_ bytes: [UInt8]) -> Bool {
        func agrees(with beginning: [UInt8]) -> Bool {
            zip(bytes, beginning).allSatisfy { $0 == $1 }
        }
        return agrees(with: configurationBeginning)
            || bytes.count <= DirectoryRecord.size && agrees(with: DirectoryRecord.magic)
    }

    /// Takes them away, but for the file that is locked. Whoever calls has the vault's locks.
    static func remove(_ remains: [[UInt8]], from directory: Descriptor) throws(StoreError) {
        for entry in remains where entry != WriterLock.entry {
            try withCString(entry) { (name) throws(StoreError) in
                _ = try retrying { unlinkat(directory.fd, name, 0) }
            }
        }
    }
}
