internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import VaultFormat

/// Replaces the files and links of the previous epoch.
extension Rekeyer {
    enum Kind {
        /// Of the current epoch, or of a type in which only the name is encrypted. The id is that of a file.
        case current(fileID: UInt64?)
        /// A file of the previous epoch, open for reading.
        case previousFile(Descriptor)
        /// A symbolic link of the previous epoch.
        case previousLink(stored: [UInt8], target: [UInt8], ProtectionClass)
        /// Its name authenticates, and its content does not.
        case damaged(String)
        /// Neither its name nor its content authenticates: it does not belong to the vault.
        case foreign
    }

    private static let ownPrefix = Array("user.vaultfs.".utf8)
    private static let accessListPrefix = Array("system.posix_acl_".utf8)

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
                    take(error, about: [])
                }
            }
        }
        try pool.run(nil, bodies, whileWaiting: showProgress)
        try check()
    }

    private func replace(_ object: RekeyObject, _ names: Names, _ workspace: Workspace) {
        do throws(StoreError) {
            try check()
            let kind = try kind(of: object)
            switch kind {
            case .current: return
            case .foreign: return count { $0.foreign += 1 }
            case .damaged(let reason): throw .damaged(reason)
            case .previousFile, .previousLink:
                guard object.status.st_nlink == 1 || names[object.identity]?.paths.count == 1 else { return }
            }
            let directory = object.directory.descriptor
            let temporary = try VaultDirectory.temporaryEntry()
            object.directory.willChange()
            guard let old = try copy(object, kind, to: temporary, in: directory, workspace) else { return }
            try directory.withTemporary(temporary) { () throws(StoreError) in
                try steps.before(.replaceEntry)
                try directory.rename(temporary, as: object.entry)
            }
            count(old)
        } catch {
            take(error, about: object.shownPath)
        }
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
                return header.epoch == keyRing.epochs.current
                    ? .current(fileID: header.fileID) : .previousFile(reader)
            case S_IFLNK:
                let stored = try object.pin.linkTarget(of: [])
                let (target, protectionClass, isCurrent) = try keyRing.linkTarget(ofStored: stored)
                return isCurrent
                    ? .current(fileID: nil) : .previousLink(stored: stored, target: target, protectionClass)
            default: return .current(fileID: nil)
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
        guard !old.hasUnsealedTail else { throw .damaged("it is longer than its header's length") }
        try steps.before(.makeObject)
        let file = try Descriptor(at: directory.fd, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        try directory.withTemporary(temporary) { () throws(StoreError) in
            let new = try EncryptedFile.create(in: file, class: old.protectionClass, store: store)
            let attributes = try Self.attributes(of: reader, from: old.keys.attributeKey, to: new.keys.attributeKey)
            try steps.before(.fillObject)
            try old.copyContents(to: new, workspace) { (size) throws(StoreError) in
                count { $0.bytes += size }
                try check()
            }
            // In this order, none of them undoes another.
            try file.changeOwner(to: Owner(status))
            try copyForeignAttributes(from: ExtendedAttributes(reader), to: ExtendedAttributes(file))
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
        let stored = try StoreError.ofFormat { () throws(FormatError) in
            try LinkTarget.encode(target, class: protectionClass, linkCipher: cipher)
        }
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
            try copyForeignAttributes(from: ExtendedAttributes(object.pin), to: ExtendedAttributes(new))
            try withCString(temporary) { (name) throws(StoreError) in
                let times = [object.status.st_atim, object.status.st_mtim]
                _ = try retrying { utimensat(directory.fd, name, times, AT_SYMLINK_NOFOLLOW) }
            }
        }
    }

    // MARK: Attributes

    /// Returns the encrypted attributes of an object as they are stored under another key.
    /// - Throws: `.damaged` if one does not authenticate.
    static func attributes(
        of object: Descriptor, from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        let attributes = ExtendedAttributes(object)
        var found: [RekeyIntent.Attribute] = []
        for stored in try attributes.namesIfSupported() where stored.starts(with: ownPrefix) {
            found.append(RekeyIntent.Attribute(name: stored, value: try attributes.value(of: stored)))
        }
        return try encrypted(found, from: oldKey, to: newKey)
    }

    /// Returns stored attributes as they are stored under another key.
    static func encrypted(
        _ attributes: [RekeyIntent.Attribute], from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        guard !attributes.isEmpty else { return [] }
        return try StoreError.ofFormat { () throws(FormatError) in
            let (old, new) = (try AttributeCodec(key: oldKey), try AttributeCodec(key: newKey))
            return try attributes.map { (attribute) throws(FormatError) in try encrypted(attribute, old, new) }
        }
    }

    private static func encrypted(
        _ attribute: RekeyIntent.Attribute, _ old: AttributeCodec, _ new: AttributeCodec
    ) throws(FormatError) -> RekeyIntent.Attribute {
        if attribute.name == AttributeCodec.packName {
            guard let sealed = try new.encrypt(pack: try old.decrypt(pack: attribute.value)) else {
                throw FormatError(.tooLong, "the pack of attributes does not fit")
            }
            return RekeyIntent.Attribute(name: attribute.name, value: sealed)
        }
        guard let name = old.name(ofStored: attribute.name) else {
            throw FormatError(.doesNotAuthenticate, "the name of an attribute does not authenticate")
        }
        let plaintext = try old.decrypt(value: attribute.value, name: name)
        return RekeyIntent.Attribute(
            name: try new.storedName(of: name), value: try new.encrypt(value: plaintext, name: name))
    }

    /// Copies the attributes that are not encrypted.
    private func copyForeignAttributes(from old: ExtendedAttributes, to new: ExtendedAttributes) throws(StoreError) {
        let wanted = try old.namesIfSupported().filter { !$0.starts(with: Self.ownPrefix) }
        // A new file may have inherited an access list from its directory.
        for name in try new.namesIfSupported()
        where name.starts(with: Self.accessListPrefix) && !wanted.contains(name) { try new.remove(name) }
        for name in wanted {
            let value = try old.value(of: name)
            // A security module sets its own attribute, and may refuse that we do.
            if (try? new.value(of: name)) != value { try new.set(name, value, flags: 0) }
        }
    }
}

extension EncryptedFile {
    /// Copies the whole content into an empty file with keys of its own. Holes stay holes. The copy is sealed. The caller
    /// makes it durable before it gets a name.
    /// - Parameter onBytes: called with the size of each piece. If it throws, the copy ends.
    /// - Throws: `.damaged` if any chunk does not verify.
    func copyContents(
        to copy: EncryptedFile, _ workspace: Workspace, onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        if records.isSparse.load(ordering: .acquiring) {
            try copy.writing.withLock { (state) throws(StoreError) in
                let writer = try copy.writer(&state)
                try copy.markSparse(&state, writer)
            }
        }
        var offset: UInt64 = 0
        while let data = try seek(from: offset, toHole: false) {
            try copy.skip(to: data)
            let end = try seek(from: data, toHole: true) ?? length
            try copyData(data..<end, to: copy, workspace, onBytes)
            offset = end
        }
        try copy.skip(to: length)
        try copy.writing.withLock { (state) throws(StoreError) in
            let writer = try copy.writer(&state)
            try copy.writeHeader(&state, writer) {
                $0.isSealed = true
                $0.length = copy.length
            }
        }
    }

    private func copyData(
        _ range: Range<UInt64>, to copy: EncryptedFile, _ workspace: Workspace,
        _ onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        var offset = range.lowerBound
        while offset < range.upperBound {
            let size = Int(min(UInt64(workspace.reply.count), range.upperBound - offset))
            let piece = workspace.reply.slice(..<size)
            guard try read(at: offset, into: piece, workspace: workspace) == size else {
                throw damaged("it ends before its length")
            }
            try copyPiece(UnsafeRawBufferPointer(piece), at: offset, to: copy, workspace)
            offset += UInt64(size)
            try onBytes(UInt64(size))
        }
    }

    /// Chunks whose records are zeros stay holes, even if the store does not report them as holes.
    private func copyPiece(
        _ piece: UnsafeRawBufferPointer, at offset: UInt64, to copy: EncryptedFile, _ workspace: Workspace
    ) throws(StoreError) {
        let chunkSize = layout.chunkSize
        var start = 0
        var position = 0
        while position < piece.count {
            let end = min(position + chunkSize, piece.count)
            let chunk = (offset + UInt64(position)) / UInt64(chunkSize)
            if piece[position..<end].allSatisfy({ $0 == 0 }),
                try isHole(chunk, records.isSparse.load(ordering: .acquiring), workspace)
            {
                try copy.append(piece.slice(start..<position), workspace)
                try copy.skip(to: offset + UInt64(end))
                start = end
            }
            position = end
        }
        try copy.append(piece.slice(start...), workspace)
    }

    /// Appends to a file that ends with a whole chunk.
    func append(_ bytes: UnsafeRawBufferPointer, _ workspace: Workspace) throws(StoreError) {
        var done = 0
        while done < bytes.count { done += try write(bytes.slice(done...), at: length, workspace: workspace) }
    }

    /// Extends a file that ends with a whole chunk by a hole up to `newLength`.
    private func skip(to newLength: UInt64) throws(StoreError) {
        guard newLength > length else { return }
        try writing.withLock { (state) throws(StoreError) in
            try writer(&state).truncate(to: layout.backingSize(ofPlaintextLength: newLength))
            syncs.noteWrite()
            setLength(&state, newLength)
        }
    }
}
