internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// Replaces the files and links of the previous epoch.
extension Rekeyer {
    enum Kind {
        /// An object of the current epoch, or of a type in which only the name is encrypted.
        case current
        /// A file of the previous epoch, open for reading.
        case previousFile(Descriptor)
        /// A symbolic link of the previous epoch.
        case previousLink(stored: [UInt8], target: [UInt8], ProtectionClass)
        /// Its name authenticates, and its content does not.
        case damaged(String)
        /// Neither its name nor its content authenticates: it does not belong to the vault.
        case foreign
    }

    /// Replaces objects that have one name in the vault, with one thread for each workspace.
    ///
    /// Directories follow only when this is done: a step reserves space, which copies made beside it would take.
    func rekeyFiles(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        // The first item is nil: it finds the objects.
        let pool = WorkPool<RekeyObject?>()
        let bodies = workspaces.map { workspace -> @Sendable (RekeyObject?) -> Void in
            // Each workspace is used by one thread only.
            nonisolated(unsafe) let workspace = workspace
            return { [self] object in
                if let object { return replace(object, names, workspace) }
                do throws(StoreError) {
                    try walk(visit: { (object) throws(StoreError) in
                        if !pool.offer(object) { replace(object, names, workspace) }
                    })
                } catch {
                    handle(error, about: [])
                }
            }
        }
        try pool.run(nil, bodies, whileWaiting: showProgress)
        try check()
    }

    private func replace(_ object: RekeyObject, _ names: Names, _ workspace: Workspace) {
        do throws(StoreError) {
            try check()
            let directory = object.directory.descriptor
            let temporary = try VaultDirectory.temporaryEntry()
            guard let old = try makeCopy(of: object, as: temporary, names, workspace) else { return }
            try directory.withTemporary(temporary) { () throws(StoreError) in try steps.before(.replaceEntry) }
            try directory.replace(object.entry, by: temporary)
            count(old)
        } catch {
            handle(error, about: object.shownPath)
        }
    }

    /// Makes the new object. When this returns, the old one is not open any more, which SMB needs to replace it.
    /// - Returns: the old object, or nil if it stays.
    private func makeCopy(
        of object: RekeyObject, as temporary: [UInt8], _ names: Names, _ workspace: Workspace
    ) throws(StoreError) -> RekeyIntent.Identity? {
        let kind = try kind(of: object)
        switch kind {
        case .current: return nil
        case .foreign:
            count { $0.foreign += 1 }
            return nil
        case .damaged(let reason): throw .damaged(reason)
        case .previousFile, .previousLink:
            guard object.status.st_nlink == 1 || names[object.identity]?.paths.count == 1 else { return nil }
        }
        object.directory.willChange()
        return try copy(object, kind, to: temporary, in: object.directory.descriptor, workspace)
    }

    /// Counts an object that was replaced.
    func count(_ old: RekeyIntent.Identity) {
        count { totals in
            if case .file = old { totals.files += 1 } else { totals.links += 1 }
        }
    }

    func kind(of object: RekeyObject) throws(StoreError) -> Kind {
        let keyRing = store.keyRing
        do throws(StoreError) {
            switch object.status.st_mode & S_IFMT {
            case S_IFREG where object.status.st_size >= off_t(FileHeader.size):
                let reader = try object.pin.reopened(flags: O_RDONLY | O_NONBLOCK)
                let header = try EncryptedFile.readHeader(of: reader, keyRing: keyRing).0
                return header.epoch == keyRing.epochs.current ? .current : .previousFile(reader)
            case S_IFLNK:
                let stored = try object.pin.linkTarget(of: [])
                let (target, protectionClass, isCurrent) = try keyRing.linkTarget(ofStored: stored)
                return isCurrent ? .current : .previousLink(stored: stored, target: target, protectionClass)
            default: return .current
            }
        } catch .damaged(let reason) {
            return object.directory.name(of: object.entry) == nil ? .foreign : .damaged(reason)
        }
    }

    /// Makes an object of the current epoch that has everything of the old one. A file is durable.
    /// - Returns: the old object, or nil if there is nothing to replace.
    /// - Throws: `.damaged` if anything of the old object does not verify. Then nothing is left of the new one.
    func copy(
        _ object: RekeyObject, _ kind: Kind, to temporary: [UInt8], in directory: Descriptor, _ workspace: Workspace
    ) throws(StoreError) -> RekeyIntent.Identity? {
        switch kind {
        case .current, .foreign: return nil
        case .damaged(let reason): throw .damaged(reason)
        case .previousFile(let reader):
            let old = try EncryptedFile.open(reader, in: store)
            try makeFile(temporary, in: directory, from: old, reader, object.status, workspace)
            return .file(old.fileID)
        case .previousLink(let stored, let target, let protectionClass):
            try makeLink(temporary, in: directory, to: target, protectionClass, from: object)
            return .link(stored)
        }
    }

    private func makeFile(
        _ temporary: [UInt8], in directory: Descriptor, from old: EncryptedFile, _ reader: Descriptor,
        _ status: stat, _ workspace: Workspace
    ) throws(StoreError) {
        guard !old.hasUnsealedTail else { throw .damaged("it is longer than its authenticated length") }
        try steps.before(.makeObject)
        let file = try Descriptor(at: directory.fd, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        try directory.withTemporary(temporary) { () throws(StoreError) in
            let new = try EncryptedFile.create(in: file, class: old.protectionClass, store: store)
            let attributes = try RekeyedAttributes.read(
                of: reader, from: old.keys.attributeKey, to: new.keys.attributeKey)
            try steps.before(.fillObject)
            try old.copyContents(to: new, workspace) { (size) throws(StoreError) in
                count { $0.bytes += size }
                try check()
            }
            // In this order, none of them undoes another.
            try file.changeOwner(to: Owner(status))
            try RekeyedAttributes.copyForeign(from: ExtendedAttributes(reader), to: ExtendedAttributes(file))
            for attribute in attributes { try ExtendedAttributes(file).set(attribute.name, attribute.value, flags: 0) }
            try retrying { fchmod(file.fd, status.st_mode & 0o7777) }
            try retrying { futimens(file.fd, [status.st_atim, status.st_mtim]) }
            try file.synchronize(dataOnly: false)
        }
    }

    private func makeLink(
        _ temporary: [UInt8], in directory: Descriptor, to target: [UInt8], _ protectionClass: ProtectionClass,
        from object: RekeyObject
    ) throws(StoreError) {
        let cipher = try store.keyRing.linkCipher(protectionClass)
        let stored = try StoreError.ofFormat(
            LinkTarget.encode(target, class: protectionClass, linkCipher: cipher))
        try steps.before(.makeObject)
        try withCString(stored) { (stored) throws(StoreError) in
            try withCString(temporary) { (name) throws(StoreError) in
                _ = try retrying { symlinkat(stored, directory.fd, name) }
            }
        }
        try directory.withTemporary(temporary) { () throws(StoreError) in
            try steps.before(.fillObject)
            let new = try Descriptor(at: directory.fd, temporary, flags: linux_O_PATH)
            try new.changeOwner(to: Owner(object.status))
            try RekeyedAttributes.copyForeign(from: ExtendedAttributes(object.pin), to: ExtendedAttributes(new))
            // Best effort: sshfs sets the times of the link's target, which does not exist.
            withCString(temporary) { name in
                let times = [object.status.st_atim, object.status.st_mtim]
                _ = utimensat(directory.fd, name, times, AT_SYMLINK_NOFOLLOW)
            }
        }
    }
}
