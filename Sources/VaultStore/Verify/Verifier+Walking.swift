internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Verifier {
    /// How many of the innermost directories stay open: more where they may be moved meanwhile.
    private var openDirectories: Int { isInUse ? 256 : 16 }

    /// Looks at everything below `root`, in the order of the store. A stack of our own: a tree may be deeper than ours.
    func walk(_ root: Descriptor) throws(StoreError) {
        let nameless = VerifierObject(entry: [], shown: [])
        stack = [VerifierFrame(object: nameless, identity: FileIdentity(try root.status()))]
        enter(root)
        while let last = stack.indices.last {
            guard var open = stack[last].open else {
                preconditionFailure("internal error: the innermost directory is not open")
            }
            let entry: DirectoryReader.Entry?
            do throws(StoreError) {
                entry = try open.reader.next()
            } catch .system(.noSuchFileOrDirectory) where isInUse {
                // Removed meanwhile, getdents(2).
                entry = nil
            } catch {
                report(error, nil, "directory")
                entry = nil
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

    /// Checks a directory's own record and attributes; it is the innermost of the stack now.
    private func enter(_ descriptor: Descriptor) {
        let last = stack.count - 1
        totals.directories += 1
        var keys: DirectoryKeys?
        let isThere = { (try? descriptor.status().st_nlink) ?? 0 > 0 }
        confirmed(isThere: isThere) {
            keys = checkRecord(of: descriptor, isRoot: last == 0)
            if let keys { checkAttributes(of: descriptor, key: keys.attributeKey, nil) }
        }
        stack[last].open = VerifierFrame.Open(
            descriptor: descriptor, keys: keys, reader: DirectoryReader(descriptor))
        if last >= openDirectories { stack[last - openDirectories].open = nil }
    }

    /// Goes down into a directory that was found in the innermost one.
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

    /// Goes back up, opening the directory above again where it was closed.
    private func leave() throws(StoreError) {
        guard let left = stack.popLast()?.open, let last = stack.indices.last, stack[last].open == nil else { return }
        // ".." is no link, but where it leads has to be looked at: the directory may have been moved.
        let descriptor = try Descriptor(
            at: left.descriptor.fd, Array("..".utf8), flags: O_RDONLY | O_DIRECTORY)
        guard FileIdentity(try descriptor.status()) == stack[last].identity else {
            throw .damaged("a directory was moved while it was being verified")
        }
        var reader = DirectoryReader(descriptor)
        try reader.seek(to: stack[last].offset)
        let keys = try? openRecord(of: descriptor).keys
        stack[last].open = VerifierFrame.Open(descriptor: descriptor, keys: keys, reader: reader)
    }

    /// Reports what is wrong with `vaultfs.dir`; nil where it gives no keys.
    private func checkRecord(of directory: Descriptor, isRoot: Bool) -> DirectoryKeys? {
        if !isRoot && isCompleted && stack[stack.count - 1].object.isNamed, let status = try? directory.status(),
            (try? Completion.isIncomplete(directory, status)) == true
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

    /// True for a directory of the vault's, though its record may be lost: its name authenticates, or something in it does.
    /// Any other is somebody else's, and stays as it is.
    private func isOurs(_ directory: Descriptor) -> Bool {
        let last = stack.count - 1
        if stack[last].object.isNamed { return true }
        if (try? directory.status(of: OpenDirectory.recordEntry)) != nil { return true }
        stack[last].isForeign = stack[last - 1].isForeign || !holdsOurs(directory)
        return !stack[last].isForeign
    }

    /// True where anything below a directory authenticates itself.
    private func holdsOurs(_ directory: Descriptor) -> Bool {
        let open = { (parent: Descriptor, entry: [UInt8]) in
            (try? Descriptor(at: parent.fd, entry, flags: O_RDONLY | O_DIRECTORY)).map { DirectoryReader($0) }
        }
        var readers = [open(directory, [UInt8(ascii: ".")])].compactMap { $0 }
        while let last = readers.indices.last {
            guard let entry = (try? readers[last].next())?.name else {
                readers.removeLast()
                continue
            }
            guard [.name, .longName].contains(EntryName.kind(of: entry)) else { continue }
            let parent = readers[last].directory
            if LostObject.find(entry, in: parent, keyRing) != nil { return true }
            if let inside = open(parent, entry) { readers.append(inside) }
        }
        return false
    }

    private func openRecord(
        of directory: Descriptor
    ) throws(StoreError) -> (record: DirectoryRecord, keys: DirectoryKeys) {
        let bytes = try readSmallFile(Array("vaultfs.dir".utf8), of: directory, limit: DirectoryRecord.size)
        do throws(StoreError) {
            let record: DirectoryRecord
            do { record = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs) } catch { throw StoreError(error) }
            let opened = try record.openKeys(keyRing)
            keys.opened += 1
            return (record, opened)
        } catch {
            keys.count(unopened: bytes, keyRing.epochs)
            throw error
        }
    }

    /// All of a file of at most `limit` bytes that is vaultfs's own.
    /// - Throws: `damaged` where it is something else than a regular file, or longer.
    func readSmallFile(_ entry: [UInt8], of directory: Descriptor, limit: Int) throws(StoreError) -> [UInt8] {
        let pin = try Descriptor(at: directory.fd, entry, flags: linux_O_PATH)
        guard try pin.status().st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        guard let bytes = try pin.reopened(flags: O_RDONLY | O_NONBLOCK).readToEnd(limit: limit) else {
            throw .damaged("over \(limit) bytes")
        }
        return bytes
    }
}
