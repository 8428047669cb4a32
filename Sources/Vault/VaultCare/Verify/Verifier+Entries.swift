internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

extension Verifier {
    private static let rootEntries: [Component] = ["vaultfs.dir", "vaultfs.json", "vaultfs.log", "vaultfs.lock"]
    /// Bytes of the sidecar of the longest name.
    private static let largestSidecar = 272

    func check(_ entry: Component, in directory: VerifierFrame) {
        let isThere = { (try? directory.descriptor.status(of: entry)) != nil }
        var found: VerifierObject?
        confirmed(isThere: isThere) { found = checkOnce(entry, in: directory) }
        // Descend after the check, which may be repeated. Objects below are confirmed on their own.
        if let found { descend(found, in: directory.descriptor) }
        progress()
    }

    /// Checks an entry. Returns it if it is a directory.
    private func checkOnce(_ entry: Component, in directory: VerifierFrame) -> VerifierObject? {
        let plain = VerifierObject(entry: entry)
        if EntryName.isObject(entry.bytes) && !EntryName.canBeEncrypted(entry.bytes) {
            return checkUnencrypted(plain, directory)
        }
        switch EntryName.kind(of: entry.bytes) {
        case .name: return checkObject(named(entry, sidecarBlob: nil, directory), in: directory.descriptor)
        case .longName:
            let blob = checkSidecar(of: plain, directory)
            let object = blob == nil ? plain : named(entry, sidecarBlob: blob, directory)
            return checkObject(object, in: directory.descriptor)
        case .conflictCopy: return checkConflictCopy(plain, directory)
        case .sidecar: checkOwner(ofSidecar: plain, in: directory.descriptor)
        // Ignore it, because it is empty and the next mount removes it.
        case .temporary where entry.starts(with: StoreTraits.prefix): break
        case .temporary: report(.leftover, plain, "left by an operation that was cut short", remedy: .remove)
        case .reserved:
            let known = stack.count == 1 ? Self.rootEntries : [Self.rootEntries[0]]
            if !known.contains(entry) { reportUnknown(plain) }
        }
        return nil
    }

    private func checkConflictCopy(_ plain: VerifierObject, _ directory: VerifierFrame) -> VerifierObject? {
        guard let keys = directory.keys, let name = directory.descriptor.conflictName(of: plain.entry, keys) else {
            return checkUnencrypted(plain, directory)
        }
        let object = VerifierObject(entry: plain.entry, name: name, isConflictCopy: true)
        report(
            .conflict, object,
            "the version that a sync client kept in a conflict: read-only; in a mount, rename or remove it")
        return checkObject(object, in: directory.descriptor)
    }

    /// Checks an entry that is not spelled like an encrypted name.
    private func checkUnencrypted(_ object: VerifierObject, _ directory: VerifierFrame) -> VerifierObject? {
        guard HiddenName.isDamaged(object.entry, in: directory.descriptor, keys: directory.keys, keyRing) else {
            report(.foreign, object, "another program's: the vault ignores it")
            return nil
        }
        if EntryName.isShortened(object.entry.bytes) {
            // The entry was new or renamed, and not yet synced, when the power failed.
            report(
                .leftover, object, "the short name of FAT, whose long one a power cut has torn",
                remedy: remedy(forNameless: object.entry, directory))
        } else {
            reportNameless(object, directory)
        }
        return checkObject(object, in: directory.descriptor)
    }

    /// Reports an entry with a name of vaultfs's own in the wrong place, such as a copy of `vaultfs.json`.
    private func reportUnknown(_ object: VerifierObject) {
        let kept = [DamagedRoot.recordPrefix, DamagedRoot.logPrefix]
        if stack.count == 1 && kept.contains(where: { object.entry.starts(with: $0) }) {
            return report(.hiddenName, object, "set aside as damaged, and not yet in lost+found", remedy: .move)
        }
        report(.foreign, object, "not one of vaultfs's own files: the vault ignores it")
    }

    /// Returns the entry, with its plaintext name if that authenticates.
    private func named(_ entry: Component, sidecarBlob: [UInt8]?, _ directory: VerifierFrame) -> VerifierObject {
        // Report nothing here without keys: the finding about the directory's record covers all names.
        guard let keys = directory.keys else { return VerifierObject(entry: entry) }
        let object = VerifierObject(
            entry: entry, name: EntryName.decode(entry.bytes, sidecarBlob: sidecarBlob, keys: keys))
        if !object.isNamed { reportNameless(object, directory) }
        return object
    }

    private func reportNameless(_ object: VerifierObject, _ directory: VerifierFrame) {
        report(
            .hiddenName, object, "its name is damaged, or of another directory",
            remedy: remedy(forNameless: object.entry, directory))
    }

    private func remedy(forNameless entry: Component, _ directory: VerifierFrame) -> Remedy? {
        // Without the directory's keys, the remedy for its record covers this entry.
        guard directory.keys != nil else { return nil }
        return LostObject.find(entry, in: directory.descriptor, keyRing) != nil ? .move : nil
    }

    /// Returns the content of a long name's sidecar if they belong together.
    private func checkSidecar(of object: VerifierObject, _ directory: VerifierFrame) -> [UInt8]? {
        let remedy = remedy(forNameless: object.entry, directory)
        do throws(StoreError) {
            let blob = try directory.descriptor.readFile(
                EntryName.sidecar(of: object.entry), limit: Self.largestSidecar)
            let digest = try StoreError.ofCrypto(Sha256.digest(blob))
            if Array("vaultfs.long.".utf8) + Base64.url.encode(digest) == object.entry.bytes { return blob }
            report(.damaged, object, "the file with its long name belongs to another name", remedy: remedy)
        } catch .system(.noSuchFileOrDirectory) {
            report(.missing, object, "the file with its long name is missing: the name cannot be read", remedy: remedy)
        } catch {
            report(error, object, "the file with its long name", remedy: remedy)
        }
        return nil
    }

    private func checkOwner(ofSidecar object: VerifierObject, in directory: Descriptor) {
        do throws(StoreError) {
            guard try directory.isSidecarOrphaned(object.entry) else { return }
            report(.leftover, object, "the long name of a file that no longer exists", remedy: .remove)
        } catch {
            report(error, object, "the file with a long name")
        }
    }

    /// Checks the object of an entry, and returns it if it is a directory. Pinned, so that its status is of this
    /// object.
    private func checkObject(_ object: VerifierObject, in directory: Descriptor) -> VerifierObject? {
        do throws(StoreError) {
            let pin = try Descriptor(at: directory, object.entry, flags: linux_O_PATH)
            let status = try pin.currentStatus()
            switch status.st_mode & S_IFMT {
            case S_IFDIR: return object
            case S_IFREG:
                totals.files += 1
                if isFirstVisit(status) { checkFile(object, pin) }
            case S_IFLNK:
                totals.links += 1
                do throws(StoreError) {
                    _ = try keyRing.linkTarget(ofStored: try pin.linkTarget())
                } catch .damaged(let reason) {
                    report(.damaged, object, reason)
                }
            default: totals.specialFiles += 1
            }
        } catch {
            report(error, object, "entry")
        }
        return nil
    }

    /// Checks the `user.*` attributes of a file or directory. Other attributes are not encrypted.
    /// - Parameter object: nil for the innermost directory itself.
    func checkAttributes(of descriptor: Descriptor, key: SecretBytes, _ object: VerifierObject?) {
        let attributes = ExtendedAttributes(descriptor)
        do throws(StoreError) {
            let names = try attributes.namesIfSupported().filter { $0.starts(with: Array("user.".utf8)) }
            guard !names.isEmpty else { return }
            let codec = try StoreError.ofFormat(AttributeCodec(key: key))
            for stored in names { check(stored, of: attributes, codec, object) }
        } catch {
            report(error, object, "attributes")
        }
    }

    private func check(
        _ stored: [UInt8], of attributes: ExtendedAttributes, _ codec: AttributeCodec, _ object: VerifierObject?
    ) {
        // Attributes that share one stored value.
        let isPack = stored == AttributeCodec.packName
        if !isPack { totals.attributes += 1 }
        guard let name = isPack ? stored : codec.name(ofStored: stored) else {
            let message = "its name is damaged, or another file's: it is not shown"
            return report(.hiddenName, object, message, attribute: stored)
        }
        do throws(StoreError) {
            let value = try attributes.value(of: stored)
            if isPack {
                totals.attributes += try StoreError.ofFormat(codec.decrypt(pack: value)).names.count
            } else {
                _ = try StoreError.ofFormat(codec.decrypt(value: value, name: name))
            }
        } catch {
            report(error, object, "attribute", attribute: name)
        }
    }
}
