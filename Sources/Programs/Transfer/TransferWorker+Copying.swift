internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension TransferWorker {
    /// Copies a file, link or special file, unless a complete copy exists.
    func copy(_ object: Object) throws(TransferFailure) {
        let existing = try existing(object)
        // Copy each name in a view as a file of its own, because names of one file can differ in their keys.
        guard object.status.st_nlink > 1, object.directory.status != nil, !options.contentsOnly else {
            return try copyFirst(object, existing)
        }
        let (file, links) = (FileIdentity(object.status), transfer.links)
        if let first = links.claim(file) { return try link(object, to: first, existing) }
        var isMade = false
        defer { links.finish(file, at: isMade ? object.path : nil, names: Int(object.status.st_nlink)) }
        try copyFirst(object, existing)
        isMade = true
    }

    func existing(_ object: Object) throws(TransferFailure) -> Destination.Item? {
        try writing(try destination.find(object.name, in: object.directory.destination))
    }

    private func copyFirst(_ object: Object, _ existing: Destination.Item?) throws(TransferFailure) {
        if let existing {
            switch try standing(of: existing, object) {
            case .complete:
                if options.savesDamaged { try surveyDamage(object) }
                return count {
                    $0.present += 1
                    if object.kind == S_IFREG { $0.bytesPresent += UInt64(max(0, object.status.st_size)) }
                }
            case .replaceable: break
            case .different: throw .differs
            }
        }
        let other =
            object.kind == S_IFREG
            ? try copyFile(object, isReplacing: existing != nil)
            : try publish(object, isReplacing: existing != nil) { (name) throws(TransferFailure) in
                let made = try make(object, as: name)
                try complete(made, object)
                return made
            }
        if let other { return try copyFirst(object, other) }
        count { totals in
            switch object.kind {
            case S_IFREG: totals.files += 1
            case S_IFLNK: totals.symbolicLinks += 1
            default: totals.specialFiles += 1
            }
        }
    }

    private func copyFile(_ object: Object, isReplacing: Bool) throws(TransferFailure) -> Destination.Item? {
        let content = try reading(try source.open(object.item, workspace))
        let resumable = try resumableName(of: object, content)
        return try publish(object, as: resumable, isReplacing: isReplacing) { (name) throws(TransferFailure) in
            let made: Destination.Item
            if resumable != nil {
                made = try resumeFile(name, from: content, of: object)
            } else {
                let file: Destination.Content
                (made, file) = try writing(try destination.makeFile(name, in: object.directory.destination))
                try fill(file, from: content, of: object)
            }
            try complete(made, object)
            return made
        }
    }

    /// Returns a temporary name from which a later transfer can go on, or nil if the file must begin anew. That
    /// includes damaged files, whose damaged ranges must be found again.
    private func resumableName(of object: Object, _ content: Source.Content) throws(TransferFailure) -> [UInt8]? {
        let status = object.status
        guard !options.savesDamaged, status.st_size > Int64(options.resumeInterval) else {
            return nil
        }
        // Leave the device out, because its number can change with a restart.
        let times = [status.st_mtim, status.st_ctim].map { "\($0.tv_sec) \($0.tv_nsec)" }
        let text = "\(status.st_ino) \(status.st_size) \(times)\n" + source.decryption(of: content).description
        return try writing(try TemporaryName.resumable(object.name, content: text))
    }

    private func complete(_ made: Destination.Item, _ object: Object) throws(TransferFailure) {
        try expectUnchanged(object)
        try keep(object.status, of: object.item, on: made)
    }

    private enum Standing {
        case complete
        /// An earlier transfer has left it incomplete, or the options allow it.
        case replaceable
        case different
    }

    /// Returns the state of an existing object. Completes an object that lacks only attributes.
    private func standing(of existing: Destination.Item, _ object: Object) throws(TransferFailure) -> Standing {
        let status = try writing(try destination.status(of: existing))
        let isSame = options.isSame(status, object.status)
        let mayReplace = options.isReplacing && status.st_mode & S_IFMT != S_IFDIR
        switch object.kind {
        case S_IFREG:
            guard isSame || mayHaveLostTimes(status, object) else { break }
            if try isComplete(existing, isSame ? nil : status, object) { return .complete }
            // Same size and mtime but unsealed: only an interrupted transfer leaves that.
            if isSame && !options.contentsOnly { return .replaceable }
        case S_IFLNK:
            guard isSame || options.contentsOnly else { break }
            let target = try reading(try source.linkTarget(of: object.item))
            if (try? destination.linkTarget(of: existing)) == target { return .complete }
        default:
            if isSame && status.st_rdev == object.status.st_rdev { return .complete }
        }
        return mayReplace ? .replaceable : .different
    }

    /// Returns true if an earlier transfer has made the file.
    /// - Parameter lost: the status of a file that may have lost its times, to be restored; nil for any other file.
    private func isComplete(
        _ existing: Destination.Item, _ lost: stat?, _ object: Object
    ) throws(TransferFailure) -> Bool {
        let isSealed = (try? destination.isSealed(existing, workspace)) == true
        if lost == nil && isSealed && !options.comparesContents {
            guard options.contentsOnly else { return true }
            let content = try reading(try source.open(object.item, workspace))
            let copy = try writing(try destination.open(existing, workspace))
            return try hasSameSamples(copy, content, upTo: reading(try source.length(of: content)))
        }
        // A power cut may have taken a part of the file, so compare all of it.
        if try difference(existing, object) != nil { return false }
        if !isSealed {
            do throws(StoreError) { try destination.seal(existing, workspace) } catch {
                // The copy is closed to writing like its source. A new copy can be sealed while it is open.
                if error == .system(.permissionDenied) { return false }
                throw TransferFailure(writing: error)
            }
        }
        if let lost { try restoreTimes(object.status, of: object.item, on: existing, lost) }
        return true
    }

    /// Returns true if an earlier transfer's file may have lost its times in a kill during a seal
    /// (``TransferTree/sealsFiles``). The caller must still compare the contents. Any other difference may be the
    /// user's change, so it stays.
    private func mayHaveLostTimes(_ status: stat, _ object: Object) -> Bool {
        let source = object.status
        return destination.sealsFiles && !options.isReplacing && object.kind == S_IFREG
            && status.st_mode & S_IFMT == S_IFREG && status.st_size == source.st_size
            && status.st_mode & 0o1777 == source.st_mode & 0o1777 && status.st_nlink <= source.st_nlink
            && [source.st_uid, geteuid()].contains(status.st_uid)
    }

    /// Makes an object with `body` under a temporary name, and then renames it to its own name.
    /// - Parameters:
    ///   - resumable: the temporary name of a file inside which a later transfer can go on; nil for a random name.
    ///   - body: returns the object, which stays open until the rename, because other transfers spare a locked object.
    /// - Returns: nil, or the object that has the name meanwhile, perhaps made by another transfer. The new one is then
    ///   removed.
    private func publish(
        _ object: Object, as resumable: [UInt8]? = nil, isReplacing: Bool,
        _ body: ([UInt8]) throws(TransferFailure) -> Destination.Item?
    ) throws(TransferFailure) -> Destination.Item? {
        let directory = object.directory.destination
        let name = if let resumable { resumable } else { try writing(try TemporaryName.make()) }
        do throws(TransferFailure) {
            let made = try body(name)
            let isPublished = try withExtendedLifetime(made) { () throws(TransferFailure) in
                try writing(try rename(name, to: object.name, in: directory, isReplacing: isReplacing))
            }
            if isPublished { return nil }
            guard let other = try existing(object) else { throw .differs }
            return other
        } catch {
            let isUseless = if case .damaged = error { true } else { error == .changed }
            if resumable == nil || isUseless { try? destination.remove(name, in: directory) }
            throw error
        }
    }

    /// Returns false, with the object removed, if another one has the name.
    private func rename(
        _ name: [UInt8], to newName: [UInt8], in directory: Destination.Item, isReplacing: Bool
    ) throws(StoreError) -> Bool {
        do throws(StoreError) {
            try destination.rename(name, to: newName, in: directory, isReplacing: isReplacing)
            return true
        } catch .system(.fileExists) where !isReplacing {
            try? destination.remove(name, in: directory)
            return false
        }
    }

    private func make(_ object: Object, as name: [UInt8]) throws(TransferFailure) -> Destination.Item {
        let new: NewObject =
            object.kind == S_IFLNK
            ? .link(target: try reading(try source.linkTarget(of: object.item)))
            : .node(mode: object.kind | 0o600, device: object.status.st_rdev)
        return try writing(try destination.make(name, new, in: object.directory.destination))
    }

    // MARK: Hard links

    /// Gives another name to the object at a path below the destination.
    private func link(_ object: Object, to path: [UInt8], _ existing: Destination.Item?) throws(TransferFailure) {
        let first = try writing(try item(at: path, from: object.directory))
        if let existing {
            let status = try writing(try destination.status(of: existing))
            if try FileIdentity(status) == FileIdentity(writing(try destination.status(of: first))) {
                return count { $0.present += 1 }
            }
            guard try mayBecomeLink(existing, status, object) else { throw .differs }
        }
        let other = try publish(object, isReplacing: existing != nil) { (name) throws(TransferFailure) in
            try writing(try destination.link(first, as: name, in: object.directory.destination))
            return nil
        }
        if let other { return try link(object, to: path, other) }
        count { $0.hardLinks += 1 }
    }

    /// Returns true if a link can replace the object without loss: an earlier transfer may have copied it as a file.
    private func mayBecomeLink(
        _ existing: Destination.Item, _ status: stat, _ object: Object
    ) throws(TransferFailure) -> Bool {
        if status.st_mode & S_IFMT == S_IFDIR { return false }
        if options.isReplacing { return true }
        guard object.kind == S_IFREG else { return try standing(of: existing, object) == .complete }
        guard options.isSame(status, object.status) || mayHaveLostTimes(status, object) else { return false }
        return try difference(existing, object) == nil
    }

    /// Returns the object at a path below the destination's root, without following links.
    private func item(at path: [UInt8], from directory: Directory) throws(StoreError) -> Destination.Item {
        var root = directory
        while let parent = root.parent { root = parent }
        var item = root.destination
        for name in path.split(separator: UInt8(ascii: "/")) {
            guard let next = try destination.find(Array(name), in: item) else { throw .system(.noSuchFileOrDirectory) }
            item = next
        }
        return item
    }
}

extension TransferWorker {
    /// Writes a file's data and leaves its holes.
    /// - Parameter start: the offset from which a resumable file goes on; nil for any other file.
    func fill(
        _ file: Destination.Content, from content: Source.Content, of object: Object, resumedAt start: UInt64? = nil
    ) throws(TransferFailure) {
        var damage = DamagedRanges()
        let interval = options.resumeInterval
        var durable = start ?? 0
        try readAll(content, from: durable, &damage) { (bytes, offset) throws(TransferFailure) in
            try writing { () throws(StoreError) in
                // Sync before a write crosses a multiple of the interval, so a longer file is on disk up to there.
                if start != nil && offset / interval > durable / interval {
                    try destination.synchronize(file)
                    durable = offset
                }
                try destination.write(bytes, to: file, at: offset, workspace)
            }
            count { $0.bytes += UInt64(bytes.count) }
        }
        let length = try reading(try source.length(of: content))
        if destination.sealsFiles { try expectEnd(of: content, at: length, object) }
        try writing { () throws(StoreError) in
            if start != nil || options.contentsOnly { try destination.synchronize(file) }
            try destination.setLength(length, of: file, workspace)
        }
        report(damage, of: object)
    }

    /// Checks that a real file ends at its size.
    /// - Throws: for files of /proc and /sys, and of network storage that does not know its files' sizes.
    private func expectEnd(of content: Source.Content, at length: UInt64, _ object: Object) throws(TransferFailure) {
        let start = length - min(length, 1)
        let end = workspace.reply.slice(..<2)
        guard try reading(try source.read(content, at: start, into: end, workspace)) != length - start else { return }
        try expectUnchanged(object)
        throw .entry("its size is not that of its content")
    }

    /// Goes on inside a large file begun by an interrupted transfer, or begins it.
    private func resumeFile(
        _ name: [UInt8], from content: Source.Content, of object: Object
    ) throws(TransferFailure) -> Destination.Item {
        let directory = object.directory.destination
        // Remove unfinished files of the same name with other content, or from an older state of the source.
        removeStale(in: directory) { $0 != name && TemporaryName.isSameFile($0, name) }
        let (made, file) = try writing(try destination.resume(name, in: directory, workspace))
        let size = try writing(try destination.length(of: file))
        var start = size == 0 ? 0 : (size - 1) / options.resumeInterval * options.resumeInterval
        let length = try reading(try source.length(of: content))
        if start >= length { start = 0 }
        if destination.sealsFiles {
            // An attacker who can write to the vault's directory could have lengthened an unsealed file with zeros,
            // exchanged or damaged it. A seal would make that final, so compare everything.
            start = try compare(file, content, upTo: start).sameLength / options.resumeInterval * options.resumeInterval
        } else if (try? hasSameSamples(file, content, upTo: start)) != true {
            // Begin anew. The keys may have changed, which the name does not show, or the copy is unreadable.
            start = 0
        }
        try writing(try destination.setLength(start, of: file, workspace))
        count { $0.bytesPresent += start }
        try fill(file, from: content, of: object, resumedAt: start)
        return made
    }

    /// Reports the damage of a file whose copy exists already.
    private func surveyDamage(_ object: Object) throws(TransferFailure) {
        guard object.kind == S_IFREG else { return }
        let content = try reading(try source.open(object.item, workspace))
        var damage = DamagedRanges()
        try readAll(content, from: 0, &damage) { _, _ in }
        report(damage, of: object)
    }

    private func report(_ damage: DamagedRanges, of object: Object) {
        guard let reason = damage.reason else { return }
        count { $0.damaged += 1 }
        transfer.damaged(object.path, damage.ranges, reason)
    }

    /// Passes all data from an offset on to `deliver`, in order. Batches do not cross multiples of the resume interval.
    private func readAll(
        _ content: Source.Content, from start: UInt64, _ damage: inout DamagedRanges,
        _ deliver: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) {
        var offset = start
        let interval = options.resumeInterval
        // Report the tail as one range: an attacker who can write to the vault's directory can make it huge.
        let end = options.savesDamaged ? source.authenticLength(of: content) : .max
        while let run = try reading(try source.data(in: content, from: offset)) {
            offset = run.lowerBound
            guard offset < end else {
                let reason = "it should be \(end) bytes long, \(run.upperBound) are there"
                return damage.add(offset..<run.upperBound, reason)
            }
            while offset < min(run.upperBound, end) {
                guard !transfer.isStopped() else { throw .stopped }
                let left = min(min(run.upperBound, end) - offset, interval - offset % interval)
                let buffer = workspace.reply.slice(..<Int(min(UInt64(workspace.reply.count), left)))
                let count = try read(content, at: offset, into: buffer, &damage, deliver)
                // Another process has truncated the file. Its times show that.
                if count == 0 { return }
                offset += UInt64(count)
            }
        }
    }

    /// Reads a range, unit by unit if it contains damage.
    /// - Returns: the number of bytes read or skipped; 0 at the end.
    private func read(
        _ content: Source.Content, at offset: UInt64, into buffer: UnsafeMutableRawBufferPointer,
        _ damage: inout DamagedRanges, _ deliver: (UnsafeRawBufferPointer, UInt64) throws(TransferFailure) -> Void
    ) throws(TransferFailure) -> Int {
        let count: Int
        do throws(StoreError) { count = try source.read(content, at: offset, into: buffer, workspace) } catch {
            guard options.savesDamaged, case .damaged(let reason) = error else { throw TransferFailure(reading: error) }
            func unit(at position: UInt64) -> Int { source.damageUnit - Int(position % UInt64(source.damageUnit)) }
            guard buffer.count > unit(at: offset) else {
                damage.add(offset..<(offset + UInt64(buffer.count)), reason)
                return buffer.count
            }
            var done = 0
            while done < buffer.count {
                let position = offset + UInt64(done)
                let piece = buffer.slice(done..<min(done + unit(at: position), buffer.count))
                let count = try read(content, at: position, into: piece, &damage, deliver)
                if count == 0 { break }
                done += count
            }
            return done
        }
        if count > 0 { try deliver(UnsafeRawBufferPointer(buffer.slice(..<count)), offset) }
        return count
    }
}

/// The ranges of a file that do not verify.
struct DamagedRanges {
    /// Maximum number of ranges, because a file can have any number. The last range covers those past the limit.
    private static let limit = 1000

    private(set) var ranges: [Range<UInt64>] = []
    /// The reason of the first range.
    private(set) var reason: String?

    /// Adds a range, or extends the last one.
    /// - Parameter range: begins at or after the end of those added before.
    mutating func add(_ range: Range<UInt64>, _ text: String) {
        if reason == nil { reason = text }
        if let last = ranges.last, last.upperBound == range.lowerBound || ranges.count == Self.limit {
            ranges[ranges.count - 1] = last.lowerBound..<range.upperBound
        } else {
            ranges.append(range)
        }
    }
}
