internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Opens `vaultfs.log`, which may be an object of any kind.
extension RedoLog {
    /// Opens the log for reading. Also returns its header and the copy, as far as present. Nil if it is absent or
    /// empty.
    /// - Throws: `.damaged` if it is no log.
    static func openToRead(_ root: Descriptor) throws(StoreError) -> (descriptor: Descriptor, headers: [LogHeader])? {
        guard let descriptor = try openExisting(root, flags: O_RDONLY) else { return nil }
        guard let headers = try headers(of: descriptor) else { return nil }
        return (descriptor, headers)
    }

    /// Opens the log for writing, and makes it if it is absent.
    static func openToWrite(
        _ root: Descriptor, size: UInt64
    ) throws(StoreError) -> (descriptor: Descriptor, header: LogHeader) {
        if let descriptor = try openExisting(root, flags: O_RDWR) {
            return (descriptor, try headers(of: descriptor)?[0] ?? LogHeader(logSize: size))
        }
        let descriptor = try Descriptor(at: root, fileName, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let header = LogHeader(logSize: size)
        // A log made by root's mount must not lock out the vault's owner.
        try descriptor.giveToOwner(of: root)
        try descriptor.write(header.bytes, at: 0)
        try descriptor.synchronize(dataOnly: false)
        try root.synchronize(dataOnly: false)
        return (descriptor, header)
    }

    static func newHeader(size: UInt64) throws(StoreError) -> LogHeader {
        var header = LogHeader(logSize: size)
        header.salt = try newSalt()
        return header
    }

    static func newSalt() throws(StoreError) -> UInt64 {
        var salt: UInt64 = 0
        // 0 stands for a log without entries.
        while salt == 0 { salt = try StoreError.ofCrypto(SecureRandom.integer()) }
        return salt
    }

    private static func openExisting(_ root: Descriptor, flags: Int32) throws(StoreError) -> Descriptor? {
        do throws(StoreError) {
            // Pin it first, because opening a device can have effects, and opening a FIFO waits.
            let pin = try Descriptor(at: root, fileName, flags: linux_O_PATH)
            let status = try pin.status()
            if let fault = fault(of: status) { throw StoreError.damaged(text(fault)) }
            let file = try pin.reopened(flags: flags)
            file.dropOldPages(status)
            return file
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    /// Returns the header and the copy, at least one of them. Nil for an empty log.
    private static func headers(of descriptor: Descriptor) throws(StoreError) -> [LogHeader]? {
        let bytes = try descriptor.read(at: 0, count: LogHeader.size)
        let hasEntries = try descriptor.status().st_size > off_t(LogHeader.areaSize)
        // A power cut can leave a new log without its header. It has no entries then.
        if bytes.allSatisfy({ $0 == 0 }) && !hasEntries { return nil }
        let copy = try descriptor.read(at: UInt64(LogHeader.copyOffset), count: LogHeader.size)
        let headers = [bytes, copy].compactMap { LogHeader(parsing: $0) }.filter { $0.salt != 0 || !hasEntries }
        guard !headers.isEmpty else { throw .damaged(text("not a log of this version, or its header is damaged")) }
        return headers
    }

    static func text(_ fault: String) -> String {
        "vaultfs.log is \(fault), so the vault is not written: 'vaultfs verify --repair' corrects that; until then it can be "
            + "mounted with -o ro"
    }

    /// The reason why a file of the log's name cannot be used. Nil for a regular file with one name.
    static func fault(of status: stat) -> String? {
        switch status.st_mode & S_IFMT {
        case S_IFREG: status.st_nlink == 1 ? nil : "a file with \(status.st_nlink) names"
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a fifo"
        case S_IFSOCK: "a socket"
        default: "a device"
        }
    }
}

/// The tag of the log's header (FileFormat, Log).
extension LogHeader {
    func tag(keys: ChunkKeys, _ cipher: ChunkCipher) throws(StoreError) -> [UInt8] {
        var (bytes, tag) = (Array(bytes[..<Self.tagOffset]), self.tag)
        try bytes.withMutableBytes { (bytes) throws(StoreError) in
            try tag.withMutableBytes { (tag) throws(StoreError) in
                try StoreError.ofCrypto { () throws(CryptoError) in
                    try cipher.authenticate(UnsafeRawBufferPointer(bytes), nonce: (nonce, salt), keys: keys, into: tag)
                }
            }
        }
        return tag
    }
}
