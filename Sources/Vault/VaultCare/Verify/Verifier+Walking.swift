internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// A directory on the way from the vault's root to the object being checked.
struct VerifierFrame {
    /// The state of an open directory. The outer directories of a deep tree are closed.
    struct Open {
        let descriptor: Descriptor
        /// Nil if the record does not authenticate. Then no name in it can be read.
        let keys: DirectoryKeys?
        var reader: DirectoryReader
    }

    let object: VerifierObject
    let identity: FileIdentity
    /// `DirectoryKeys.identity`. Nil if the record does not authenticate.
    var secret: [UInt8]?
    /// The position in the directory at which reading continues.
    var offset: Int64 = 0
    var open: Open?
    /// True if nothing in it belongs to this vault.
    var isForeign = false
}

extension Verifier {
    /// Number of innermost directories that stay open. There are more if directories may be moved meanwhile.
    private var openDirectories: Int { isInUse ? 256 : 16 }

    /// Checks everything below `root`, in the order of the store. Not recursive: a tree may be deeper than the stack.
    func walk(_ root: Descriptor) throws(StoreError) {
        stack = [VerifierFrame(object: VerifierObject([]), identity: FileIdentity(try root.status()))]
        enter(root)
        while let last = stack.indices.last {
            guard var open = stack[last].open else {
                preconditionFailure("internal error: the innermost directory is not open")
            }
            var entry: DirectoryReader.Entry?
            do throws(StoreError) { entry = try open.reader.next() } catch {
                // If it is in use, the directory may have been removed meanwhile, getdents(2).
                if !isInUse || error != .system(.noSuchFileOrDirectory) { report(error, nil, "directory") }
            }
            if let entry {
                stack[last].offset = entry.nextOffset
                stack[last].open = open
                check(entry.name, in: open)
            } else {
                progress()
                try leave()
            }
        }
    }

    /// Checks the record and attributes of the directory that is now the innermost of the stack.
    private func enter(_ descriptor: Descriptor) {
        let last = stack.count - 1
        totals.directories += 1
        var keys: DirectoryKeys?
        let isThere = { (try? descriptor.status().st_nlink) ?? 0 > 0 }
        var isRepeated = false
        confirmed(isThere: isThere) {
            keys = checkRecord(of: descriptor, isRoot: last == 0)
            isRepeated = keys.map { keys in stack[..<last].contains { $0.secret == keys.identity } } ?? false
            if isRepeated {
                // The root's record elsewhere has been reported: its flag is set.
                if keys?.identity != stack[0].secret { report(OpenDirectory.repeated, nil, "directory") }
                return
            }
            if let keys { checkAttributes(of: descriptor, key: keys.attributeKey, nil) }
        }
        if isRepeated {
            stack.removeLast()
            return
        }
        stack[last].secret = keys?.identity
        stack[last].open = VerifierFrame.Open(descriptor: descriptor, keys: keys, reader: DirectoryReader(descriptor))
        if last >= openDirectories { stack[last - openDirectories].open = nil }
    }

    /// Enters a directory that was found in the innermost one.
    func descend(_ object: VerifierObject, in parent: Descriptor) {
        do throws(StoreError) {
            let descriptor = try Descriptor(at: parent.fd, object.entry, flags: O_RDONLY | O_DIRECTORY)
            let identity = FileIdentity(try descriptor.status())
            stack.append(VerifierFrame(object: object, identity: identity))
            enter(descriptor)
        } catch .system(.noSuchFileOrDirectory) where isInUse {
            return
        } catch {
            totals.directories += 1
            report(error, object, "directory")
        }
    }

    /// Returns to the directory above, and opens it again if it was closed.
    private func leave() throws(StoreError) {
        guard let left = stack.popLast()?.open, let last = stack.indices.last, stack[last].open == nil else { return }
        // Check that ".." leads to the directory above: this one may have been moved.
        let descriptor = try Descriptor(at: left.descriptor.fd, Array("..".utf8), flags: O_RDONLY | O_DIRECTORY)
        guard FileIdentity(try descriptor.status()) == stack[last].identity else {
            throw .damaged("a directory was moved while it was being verified")
        }
        var reader = DirectoryReader(descriptor)
        try reader.seek(to: stack[last].offset)
        let keys = try? openRecord(of: descriptor).keys
        stack[last].open = VerifierFrame.Open(descriptor: descriptor, keys: keys, reader: reader)
    }

    /// Reports damage of `vaultfs.dir`. Returns nil if it gives no keys.
    private func checkRecord(of directory: Descriptor, isRoot: Bool) -> DirectoryKeys? {
        if !isRoot && isCompleted && stack[stack.count - 1].object.isNamed && !isInConflictCopy(nil),
            (try? Completion.isIncomplete(directory)) == true
        {
            report(
                .incomplete, nil, "vaultfs.dir: missing or cut short: a mount completes the directory, which is empty",
                remedy: .complete)
            return nil
        }
        let remedy: Remedy? = isRoot ? .renewRoot : isOurs(directory) ? .empty : nil
        do throws(StoreError) {
            let (record, keys) = try openRecord(of: directory)
            if record.isRoot != isRoot {
                report(
                    .damaged, nil, "vaultfs.dir: the root's flag is \(record.isRoot ? "set" : "not set")",
                    remedy: remedy)
            }
            return keys
        } catch .system(.noSuchFileOrDirectory) {
            report(.missing, nil, "vaultfs.dir: missing", remedy: remedy)
        } catch {
            report(error, nil, "vaultfs.dir", remedy: remedy)
        }
        return nil
    }

    /// Returns true for a directory of the vault, even if its record is lost: its name authenticates, or something in it
    /// does. Any other directory stays as it is.
    private func isOurs(_ directory: Descriptor) -> Bool {
        let last = stack.count - 1
        if stack[last].object.isNamed { return true }
        if (try? directory.status(of: OpenDirectory.recordEntry)) != nil { return true }
        stack[last].isForeign = stack[last - 1].isForeign || !HiddenName.holdsOurs(directory, keyRing)
        return !stack[last].isForeign
    }

    private func openRecord(
        of directory: Descriptor
    ) throws(StoreError) -> (record: DirectoryRecord, keys: DirectoryKeys) {
        let bytes = try directory.readFile(OpenDirectory.recordEntry, limit: DirectoryRecord.size)
        do throws(StoreError) {
            let record = try keyRing.parseRecord(bytes)
            let opened = try record.openKeys(keyRing)
            keys.opened += 1
            return (record, opened)
        } catch {
            keys.count(unopened: bytes, keyRing.epochs)
            throw error
        }
    }
}
