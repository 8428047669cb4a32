internal import BackingStore
internal import CLinux
internal import Glibc
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Has every name of a file or symbolic link lead to the object that takes its place. It may be done any number of times.
struct RekeyLinksStep {
    private let step: RekeyIntent.Links
    private let root: Descriptor
    private let before: RekeyHook

    init(_ step: RekeyIntent.Links, root: Descriptor, before: @escaping RekeyHook) {
        self.step = step
        self.root = root
        self.before = before
    }

    func perform() throws(StoreError) {
        for path in step.paths {
            guard let entry = path.last, let directory = try parent(of: path) else { continue }
            guard try isOld(entry, in: directory) else { continue }
            try replace(entry, in: directory)
        }
    }

    /// Nil where somebody has removed it meanwhile.
    private func parent(of path: [[UInt8]]) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            return try root.directory(at: path.dropLast())
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func isOld(_ entry: [UInt8], in directory: Descriptor) throws(StoreError) -> Bool {
        let status: stat
        do throws(StoreError) { status = try directory.status(of: entry) } catch .system(.noSuchFileOrDirectory) {
            return false
        }
        switch step.old {
        case .link(let stored):
            return status.st_mode & S_IFMT == S_IFLNK ? try directory.linkTarget(of: entry) == stored : false
        case .file(let id):
            guard status.st_mode & S_IFMT == S_IFREG else { return false }
            let file = try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK)
            return try RekeyClaim(of: file)?.fileID == id
        }
    }

    private func replace(_ entry: [UInt8], in directory: Descriptor) throws(StoreError) {
        let times = try directory.status()
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.linkName)
        do throws(StoreError) {
            try withCString(step.temporary) { (new) throws(StoreError) in
                try withCString(temporary) { (name) throws(StoreError) in
                    _ = try retrying { linkat(root.fd, new, directory.fd, name, 0) }
                }
            }
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.rekey: what is to take the place of a file with several names is gone")
        }
        do throws(StoreError) {
            try before(.renameLink)
            try OpenDirectory.rename(temporary, from: directory.fd, to: directory.fd, as: entry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
        try retrying { futimens(directory.fd, [times.st_atim, times.st_mtim]) }
        // Before the intent goes.
        try directory.synchronize(dataOnly: false)
    }
}

/// What the first bytes of a backing file claim, not authenticated.
struct RekeyClaim {
    let epoch: UInt8
    let fileID: UInt64

    /// Nil for what does not begin like a file of a vault.
    init?(of file: Descriptor) throws(StoreError) {
        var start = [UInt8](repeating: 0, count: 16)
        let count = try start.withMutableBytes { (bytes) throws(StoreError) -> Int in
            try file.read(at: 0, into: bytes)
        }
        guard count == start.count, start.starts(with: Array("VFSF".utf8)) else { return nil }
        epoch = start[7]
        fileID = start[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }
}
