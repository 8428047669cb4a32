internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Makes what takes the place of objects of the previous epoch. Any thread.
struct RekeyObjects {
    /// What an object is to a rekey.
    enum Standing {
        /// Nothing of it is encrypted but its name, or it is of the current epoch.
        case current
        /// A file of the previous epoch.
        case previousFile(Descriptor, FileHeader)
        /// A symbolic link of the previous epoch, and its target.
        case previousLink(stored: [UInt8], target: [UInt8], ProtectionClass)
        /// Its name is one of the vault's, and it does not authenticate.
        case damaged(String)
        /// Neither its name nor itself authenticates: not the vault's.
        case foreign
    }

    let store: Store
    let notes: RekeyNotes
    let before: RekeyHook
    private var keyRing: KeyRing { store.keyRing }

    func temporaryEntry() throws(StoreError) -> [UInt8] { Array(try VaultDirectory.temporaryEntry().utf8) }

    /// Frees the journal's slots of a file that was replaced, once that is durable: they may hold its one good copy.
    func freeSlots(of fileID: UInt64, in directory: Descriptor) throws(StoreError) {
        guard store.journal.retainedFiles.contains(fileID) else { return }
        try directory.synchronize(dataOnly: false)
        store.journal.forget(file: fileID)
    }

    func standing(of object: RekeyWalk.Object) throws(StoreError) -> Standing {
        do throws(StoreError) {
            switch object.status.st_mode & S_IFMT {
            case S_IFREG where object.status.st_size >= off_t(FileHeader.size):
                let reader = try notes.reopenForReading(object.pin, at: object.path)
                let header = try EncryptedFile.readHeader(of: reader, keyRing: keyRing).0
                return header.epoch == keyRing.epochs.current ? .current : .previousFile(reader, header)
            case S_IFLNK:
                let stored = try object.pin.linkTarget(of: [])
                let (target, protectionClass, isCurrent) = try keyRing.linkTarget(ofStored: stored)
                return isCurrent ? .current : .previousLink(stored: stored, target: target, protectionClass)
            default:
                return .current
            }
        } catch .damaged(let reason) {
            return object.place.name(of: object.entry) == nil ? .foreign : .damaged(reason)
        }
    }

    /// Makes a file under `temporary` that holds what the old one does, durably.
    /// - Parameter onBytes: as for `copyContents`.
    /// - Returns: the id of the old file.
    /// - Throws: `.damaged` where anything of the old one does not verify; then nothing is left of the new one.
    func makeFile(
        _ temporary: [UInt8], in directory: Descriptor, from reader: Descriptor,
        of object: RekeyWalk.Object, _ workspace: Workspace, onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) -> UInt64 {
        let old = try EncryptedFile.open(reader, in: store)
        guard !old.hasUnsealedTail else { throw .damaged("it is longer than its header vouches for") }
        // As a mount that opens it for writing; where it cannot be opened so, reading tells whether it is damaged.
        if (try? old.prepareForWriting()) != nil { _ = try old.cutTornAppend() }
        try before(.makeObject)
        let file = try Descriptor(
            at: directory.fd, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        do throws(StoreError) {
            let new = try EncryptedFile.create(in: file, class: old.protectionClass, store: store)
            let attributes = try notes.whileReadable(reader, at: object.path) { () throws(StoreError) in
                try RekeyAttributes.encrypted(of: reader, from: old.keys.attributeKey, to: new.keys.attributeKey)
            }
            try before(.fillObject)
            try old.copyContents(to: new, workspace, onBytes: onBytes)
            try notes.whileReadable(reader, at: object.path) { () throws(StoreError) in
                try RekeyAttributes.carry(from: reader, object.status, to: file, encrypted: attributes)
            }
            try file.synchronize(dataOnly: false)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
        return old.fileID
    }

    /// Makes a symbolic link under `temporary` with the target of the old one.
    func makeLink(
        _ temporary: [UInt8], in directory: Descriptor, to target: [UInt8], _ protectionClass: ProtectionClass,
        from pin: Descriptor, _ status: stat
    ) throws(StoreError) {
        let cipher = try keyRing.linkCipher(protectionClass)
        let stored: [UInt8]
        do throws(FormatError) {
            stored = try LinkTarget.encode(target, class: protectionClass, linkCipher: cipher)
        } catch {
            throw StoreError(error)
        }
        try before(.makeObject)
        try withCString(stored) { (stored) throws(StoreError) in
            try withCString(temporary) { (name) throws(StoreError) in
                _ = try retrying { symlinkat(stored, directory.fd, name) }
            }
        }
        do throws(StoreError) {
            try before(.fillObject)
            let new = try Descriptor(at: directory.fd, temporary, flags: linux_O_PATH)
            let made = try new.status()
            if made.st_uid != status.st_uid || made.st_gid != status.st_gid {
                try retrying { fchownat(new.fd, "", status.st_uid, status.st_gid, linux_AT_EMPTY_PATH) }
            }
            try RekeyAttributes.carryForeign(from: ExtendedAttributes(pin), to: ExtendedAttributes(new))
            try withCString(temporary) { (name) throws(StoreError) in
                _ = try retrying {
                    utimensat(directory.fd, name, [status.st_atim, status.st_mtim], AT_SYMLINK_NOFOLLOW)
                }
            }
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
    }
}
