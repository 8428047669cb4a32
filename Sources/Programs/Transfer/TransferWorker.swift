internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// One thread of a transfer, which walks the source, and copies or compares.
struct TransferWorker<Source: TransferTree, Destination: TransferTree> where Source.Workspace == Destination.Workspace {
    typealias Transfer = TreeTransfer<Source, Destination>
    typealias Directory = Transfer.Directory
    typealias Object = Transfer.Object

    /// The number of a directory's names handed to a thread at a time.
    private static var batch: Int { 32 }
    /// The deepest nesting of directories, because the directory at each level is open on both sides.
    private static var maximumDepth: Int { 1000 }

    let transfer: Transfer
    let workspace: Source.Workspace

    var source: Source { transfer.source }
    var destination: Destination { transfer.destination }
    var options: TransferOptions { transfer.options }

    func count(_ body: (inout TransferTotals) -> Void) { transfer.count(body) }

    func perform(_ work: Transfer.Work) {
        switch work {
        case .directory(let directory):
            sweep(directory)
            attempt(directory.path, try transferContents(of: directory))
            end(directory)
        case .names(let directory, let names):
            for name in names {
                attempt(directory.path(of: name), try transfer(name, in: directory, as: name))
            }
            end(directory)
        case .file(let name, let directory, let newName):
            sweep(directory)
            attempt(name, try transfer(name, in: directory, as: newName))
        }
    }

    /// Gives work to another thread, or does it here if enough work waits.
    private func share(_ work: Transfer.Work) {
        if !transfer.pool.offer(work) { perform(work) }
    }

    /// Runs `body`, and reports a failure that concerns this path alone.
    private func attempt(_ path: [UInt8], _ body: @autoclosure () throws(TransferFailure) -> Void) {
        guard !transfer.isStopped() else { return transfer.stop(.stopped) }
        // After an early end, leave the directory unfinished.
        if transfer.failure != nil { return }
        do throws(TransferFailure) {
            try body()
        } catch {
            // A thread that waits for a key fails too when the transfer is stopped. Report the stop, not the failure.
            if transfer.isStopped() { return transfer.stop(.stopped) }
            switch error {
            case .stopped: transfer.stop(.stopped)
            case .unusable(let error): transfer.stop(.unusable(path: path, error))
            case .damaged(let text) where options.savesDamaged:
                count { $0.damaged += 1 }
                transfer.damaged(path, [], text)
            case .entry(let text), .damaged(let text):
                count { $0.failed += 1 }
                transfer.failed(path, text)
            }
        }
    }

    // MARK: Directories

    private func transferContents(of directory: Directory) throws(TransferFailure) {
        var listing = try reading(try source.list(directory.source))
        var names: [[UInt8]] = []
        while let name = try reading(try source.next(&listing)) {
            names.append(name)
            guard names.count == Self.batch else { continue }
            share(names, of: directory)
            names = []
            if transfer.isStopped() { throw .stopped }
        }
        share(names, of: directory)
    }

    private func share(_ names: [[UInt8]], of directory: Directory) {
        if names.isEmpty { return }
        directory.begin()
        share(.names(directory, names))
    }

    /// Ends one piece of a directory's work. The last piece finishes the directory and ends a piece of its parent.
    private func end(_ directory: Directory) {
        var current: Directory? = directory
        while let directory = current, directory.end() {
            if let status = directory.status { attempt(directory.path, try finish(directory, status)) }
            current = directory.parent
        }
    }

    private func finish(_ directory: Directory, _ status: stat) throws(TransferFailure) {
        if !options.isComparing {
            // After a failure the next transfer may still need an unfinished file.
            if transfer.totals.failed == 0 { sweep(directory, includingResumable: true) }
            if !directory.keepsOwn {
                try keep(status, of: directory.source, on: directory.destination)
                if directory.parent == nil { try removeMark(in: directory.destination, status) }
            }
        }
        if directory.isNew { count { $0.directories += 1 } }
    }

    private func transfer(_ name: [UInt8], in directory: Directory, as newName: [UInt8]) throws(TransferFailure) {
        if directory.status != nil && TemporaryName.isOne(name) {
            if options.isComparing { return }
            throw .isTemporary
        }
        guard let item = try reading(try source.find(name, in: directory.source)) else {
            throw .entry("it was removed meanwhile")
        }
        var object = Object(
            item: item, status: try reading(try source.status(of: item)), directory: directory, name: newName,
            path: directory.path(of: name))
        if options.leftOut == FileIdentity(object.status) {
            throw .entry("it is the vault or source itself, and left out")
        }
        if options.contentsOnly && ![S_IFREG, S_IFLNK, S_IFDIR].contains(object.kind) {
            if options.isComparing { return }
            throw .entry("neither a file nor a directory nor a link")
        }
        if options.dropsSpecial && object.isDevice {
            if !options.isComparing { count { $0.notKept.devices += 1 } }
            return
        }
        if object.kind == S_IFDIR {
            let inside = try enter(object)
            directory.begin()
            return share(.directory(inside))
        }
        if object.kind == S_IFREG && options.contentsOnly { try findLength(of: &object) }
        if options.isComparing { try compare(object) } else { try copy(object) }
    }

    /// Opens a file to get its exact length, which may need its key. So a copy with another time is refused first.
    private func findLength(of object: inout Object) throws(TransferFailure) {
        if !options.isComparing, let existing = try existing(object) {
            let found = try writing(try destination.status(of: existing))
            if FileIdentity(found) == FileIdentity(object.status) { throw .entry("the destination is the source") }
            guard options.isReplacing || found.st_mode & S_IFMT == S_IFREG && options.hasSameTime(found, object.status)
            else { throw .differs }
        }
        let content = try reading(try source.open(object.item, workspace))
        object.status = try withExtendedLifetime(content) { () throws(TransferFailure) in
            try reading(try source.status(of: object.item))
        }
    }

    // MARK: Entering

    /// Opens the directory at the destination, or makes it.
    private func enter(_ object: Object) throws(TransferFailure) -> Directory {
        let directory = object.directory
        guard directory.depth < Self.maximumDepth else {
            throw .entry("more than \(Self.maximumDepth) directories deep")
        }
        let existing = try existing(object)
        let made: Destination.Item
        if let existing {
            try writing(try open(existing))
            made = existing
        } else if options.isComparing {
            throw .missing
        } else {
            made = try writing(try destination.make(object.name, .directory(mode: 0o700), in: directory.destination))
        }
        return Directory(
            object.item, made, path: object.path, parent: directory, status: object.status, isNew: existing == nil)
    }

    /// Checks that an existing object is a directory, and makes it writable.
    private func open(_ existing: Destination.Item) throws(StoreError) {
        let status = try destination.status(of: existing)
        guard status.st_mode & S_IFMT == S_IFDIR else { throw .system(.fileExists) }
        if options.isComparing { return }
        guard options.leftOut != FileIdentity(status) else {
            throw .damaged("the vault or source itself is there, and stays as it is")
        }
        // The directory gets its source's mode when everything is in it.
        if geteuid() != 0, !options.contentsOnly, status.st_mode & 0o700 != 0o700 {
            try change(existing) { $0.mode = status.st_mode & 0o7777 | 0o700 }
        }
    }

    /// Removes the mark from a complete destination, and then sets the times again, because the removal has changed
    /// them. Until then the next transfer may treat the directory as made by this one.
    private func removeMark(in made: Destination.Item, _ status: stat) throws(TransferFailure) {
        try writing { () throws(StoreError) in
            let kept = try destination.status(of: made).st_mode & 0o7777
            let isClosed = geteuid() != 0 && kept & 0o300 != 0o300
            // A removal needs write access, so open the directory to its owner for that moment.
            if isClosed { try change(made) { $0.mode = kept | 0o700 } }
            do throws(StoreError) {
                try destination.remove(TemporaryName.mark, in: made)
            } catch .system(.noSuchFileOrDirectory) {}
            if isClosed { try change(made) { $0.mode = kept } }
        }
        // Ignore a refusal, because it was counted before.
        try? change(made) { $0.setTimes(of: status) }
    }

    /// Removes unfinished objects of killed transfers, as far as they can be seen and removed.
    private func sweep(_ directory: Directory, includingResumable: Bool = false) {
        if directory.isNew || options.isComparing { return }
        removeStale(in: directory.destination) { name in
            TemporaryName.isOne(name) && name != TemporaryName.mark
                && (includingResumable || !TemporaryName.isResumable(name))
        }
    }

    /// Removes the objects of ended transfers whose name passes the test.
    func removeStale(in directory: Destination.Item, where isMeant: ([UInt8]) -> Bool) {
        guard var listing = try? destination.list(directory) else { return }
        while let name = try? destination.next(&listing) {
            guard isMeant(name), let item = try? destination.find(name, in: directory), destination.isStale(item)
            else { continue }
            try? destination.remove(name, in: directory)
        }
    }
}

extension TransferWorker {
    /// Compares an object at the destination, and all its content, with its source.
    func compare(_ object: Object) throws(TransferFailure) {
        guard let existing = try existing(object) else { throw .missing }
        let status = try writing(try destination.status(of: existing))
        guard options.isSame(status, object.status) else {
            throw .entry("its type, size or time is not that of the source")
        }
        switch object.kind {
        case S_IFREG:
            if let reason = try difference(existing, object) {
                count { $0.different += 1 }
                let advice =
                    removeWrongCopy(existing, of: object) ? ": the copy was removed, run the same command again" : ""
                return transfer.failed(object.path, reason + advice)
            }
        case S_IFLNK:
            let target = try reading(try source.linkTarget(of: object.item))
            guard try writing(try destination.linkTarget(of: existing)) == target else {
                throw .entry("its target is not that of the source")
            }
        default: break
        }
        count { $0.files += 1 }
    }

    /// Removes a file that this transfer has copied wrong. Returns true if it could. The caller reports the difference.
    private func removeWrongCopy(_ existing: Destination.Item, of object: Object) -> Bool {
        guard let since = options.copiedSince, let changed = try? destination.status(of: existing).st_ctim,
            (changed.tv_sec, changed.tv_nsec) >= (since.tv_sec, since.tv_nsec)
        else { return false }
        return (try? destination.remove(object.name, in: object.directory.destination)) != nil
    }

    /// Returns how the contents differ, or nil if they are the same.
    func difference(_ existing: Destination.Item, _ object: Object) throws(TransferFailure) -> String? {
        let content = try reading(try source.open(object.item, workspace))
        let copy: Destination.Content
        do throws(StoreError) { copy = try destination.open(existing, workspace) } catch {
            return "what was written cannot be read: \(error.reason)"
        }
        destination.forgetCached(copy)
        let difference = try compare(copy, content).difference
        try expectUnchanged(object)
        return difference
    }

    /// Compares contents from the start up to `end`, or up to the end of the longer.
    /// - Returns: the offset up to which the contents are surely the same, and the difference there, or nil if none.
    func compare(
        _ copy: Destination.Content, _ content: Source.Content, upTo end: UInt64 = .max
    ) throws(TransferFailure) -> (sameLength: UInt64, difference: String?) {
        let half = workspace.reply.count / 2
        var offset: UInt64 = 0
        while offset < end {
            guard !transfer.isStopped() else { throw .stopped }
            let size = Int(min(UInt64(half), end - offset))
            let (wanted, found) = (workspace.reply.slice(..<size), workspace.reply.slice(half..<(half + size)))
            let count = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had: Int
            do throws(StoreError) { had = try destination.read(copy, at: offset, into: found, workspace) } catch {
                return (offset, "what was written cannot be read: \(error.reason)")
            }
            guard had == count, Self.isSame(wanted, found, count) else {
                return (offset, "its content is not that of the source, after byte \(offset)")
            }
            if count == 0 { break }
            if options.isComparing { self.count { $0.bytes += UInt64(count) } }
            offset += UInt64(count)
            // Skip a hole of both files, but read the source's last byte, to see if both end there.
            let data = try reading(try source.data(in: content, from: offset))
            let other = try? destination.data(in: copy, from: offset)
            let next = min(data?.lowerBound ?? .max, other?.lowerBound ?? .max)
            if next > offset {
                let length = try reading(try source.length(of: content))
                offset = max(offset, min(next, end, length - min(length, 1)))
            }
        }
        return (offset, nil)
    }

    /// Compares 4 KiB at the start, before `end`, and where the source shows a different decryption. A different key,
    /// initial vector or chunk size changes at least one of them.
    func hasSameSamples(
        _ copy: Destination.Content, _ content: Source.Content, upTo end: UInt64
    ) throws(TransferFailure) -> Bool {
        let size: UInt64 = 4096
        for offset in [0, source.decryption(of: content).sample, end - min(end, size)] where offset < end {
            let count = Int(min(size, end - offset))
            let (wanted, found) = (workspace.reply.slice(..<count), workspace.reply.slice(count..<(2 * count)))
            let expected = try reading(try source.read(content, at: offset, into: wanted, workspace))
            let had = try writing(try destination.read(copy, at: offset, into: found, workspace))
            guard expected == count, had == count, Self.isSame(wanted, found, count) else { return false }
        }
        return true
    }

    /// - Throws: `changed` if the source was written to since its status was taken.
    func expectUnchanged(_ object: Object) throws(TransferFailure) {
        let status = try reading(try source.status(of: object.item))
        guard FileStamp(status) == FileStamp(object.status) else { throw .changed }
    }

    private static func isSame(
        _ one: UnsafeMutableRawBufferPointer, _ other: UnsafeMutableRawBufferPointer, _ count: Int
    ) -> Bool {
        guard count > 0, let first = one.baseAddress, let second = other.baseAddress else { return true }
        return memcmp(first, second, count) == 0
    }
}
