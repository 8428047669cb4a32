internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

extension TreeTransfer {
    /// Copies a file, link or special file, unless it is there.
    func copy(
        _ object: SourceObject<Source.Item>, in directory: Directory, _ workspace: Workspace
    ) throws(TransferFailure) {
        let existing = try existing(object, in: directory)
        guard object.status.st_nlink > 1, directory.status != nil else {
            return try copyFirst(object, existing, in: directory, workspace)
        }
        let file = FileIdentity(object.status)
        if let first = links.claim(file) { return try link(object, to: first, existing, in: directory, workspace) }
        var isMade = false
        defer { links.finish(file, at: isMade ? object.path : nil, names: Int(object.status.st_nlink)) }
        try copyFirst(object, existing, in: directory, workspace)
        isMade = true
    }

    func existing(
        _ object: SourceObject<Source.Item>, in directory: Directory
    ) throws(TransferFailure) -> Destination.Item? {
        try writing(object.path) { () throws(StoreError) in
            try destination.find(object.name, in: directory.destination)
        }
    }

    private func copyFirst(
        _ object: SourceObject<Source.Item>, _ existing: Destination.Item?, in directory: Directory,
        _ workspace: Workspace
    ) throws(TransferFailure) {
        if let existing {
            switch try standing(of: existing, object, workspace) {
            case .complete:
                if options.savesDamaged { try surveyDamage(object, workspace) }
                return count {
                    $0.present += 1
                    if object.kind == S_IFREG { $0.bytesPresent += UInt64(max(0, object.status.st_size)) }
                }
            case .replaceable: break
            case .different: throw .differs
            }
        }
        let isPublished = try publish(object, in: directory, isReplacing: existing != nil) {
            (name) throws(TransferFailure) in
            let made = try make(object, as: name, in: directory.destination, workspace)
            try expectUnchanged(object)
            try keep(object.status, of: object.item, on: made, path: object.path, workspace)
            return made
        }
        guard isPublished else {
            guard let other = try self.existing(object, in: directory) else { throw .differs }
            return try copyFirst(object, other, in: directory, workspace)
        }
        count { totals in
            switch object.kind {
            case S_IFREG: totals.files += 1
            case S_IFLNK: totals.symbolicLinks += 1
            default: totals.specialFiles += 1
            }
        }
    }

    /// What is there already, to a transfer.
    private enum Standing {
        case complete
        /// A former transfer has made it, and not completed it, or it is to be replaced.
        case replaceable
        case different
    }

    /// Completes what is there where only attributes are missing.
    private func standing(
        of existing: Destination.Item, _ object: SourceObject<Source.Item>, _ workspace: Workspace
    ) throws(TransferFailure) -> Standing {
        let status = try writing(object.path) { () throws(StoreError) in try destination.status(of: existing) }
        let isSame = TransferStamp.isSame(status, object.status)
        let mayReplace = options.isReplacing && status.st_mode & S_IFMT != S_IFDIR
        switch object.kind {
        case S_IFREG:
            guard isSame || mayHaveLostTimes(status, object) else { break }
            if try isComplete(existing, isSame ? nil : status, object, workspace) { return .complete }
            // With the size and time of its source, and yet not complete, it was made by a former transfer: nothing else
            // lets a file of a vault be without a word for its length.
            if isSame { return .replaceable }
        case S_IFLNK:
            guard isSame else { break }
            let target = try reading { () throws(StoreError) in try source.linkTarget(of: object.item) }
            if (try? destination.linkTarget(of: existing)) == target { return .complete }
        default:
            if isSame && status.st_rdev == object.status.st_rdev { return .complete }
        }
        return mayReplace ? .replaceable : .different
    }

    /// Whether a former transfer has made it.
    /// - Parameter lost: what it is where it may have lost its times: then it gets them back.
    private func isComplete(
        _ existing: Destination.Item, _ lost: stat?, _ object: SourceObject<Source.Item>, _ workspace: Workspace
    ) throws(TransferFailure) -> Bool {
        let isVouchedFor = (try? destination.isVouchedFor(existing, workspace)) == true
        if lost == nil && isVouchedFor && !options.looksAtContents { return true }
        // The former transfer was killed, and a power cut may have taken some of it.
        if try difference(existing, object, workspace) != nil { return false }
        if !isVouchedFor {
            do throws(StoreError) { try destination.vouch(for: existing, workspace) } catch {
                // Closed to writing, as its source: made anew, it is vouched for as it is written.
                if error == .system(.permissionDenied) { return false }
                throw TransferFailure(writing: object.path, error)
            }
        }
        if let lost {
            try restoreTimes(object.status, of: object.item, on: existing, lost, path: object.path, workspace)
        }
        return true
    }

    /// Whether what is there may be what a former transfer has made, but for what `mayLoseTimes` speaks of: its contents
    /// tell. Nothing else of it is changed, which somebody may have given it.
    private func mayHaveLostTimes(_ status: stat, _ object: SourceObject<Source.Item>) -> Bool {
        let source = object.status
        return destination.mayLoseTimes && !options.isReplacing && object.kind == S_IFREG
            && status.st_mode & S_IFMT == S_IFREG && status.st_size == source.st_size
            && status.st_mode & 0o1777 == source.st_mode & 0o1777 && status.st_nlink <= source.st_nlink
            && [source.st_uid, geteuid()].contains(status.st_uid)
    }

    /// Whether nothing is lost where a link takes its place: a former transfer may have made each of two names a file.
    private func mayBecomeLink(
        _ existing: Destination.Item, _ object: SourceObject<Source.Item>, _ workspace: Workspace
    ) throws(TransferFailure) -> Bool {
        let status = try writing(object.path) { () throws(StoreError) in try destination.status(of: existing) }
        if status.st_mode & S_IFMT == S_IFDIR { return false }
        if options.isReplacing { return true }
        guard object.kind == S_IFREG else { return try standing(of: existing, object, workspace) == .complete }
        guard TransferStamp.isSame(status, object.status) || mayHaveLostTimes(status, object) else { return false }
        return try difference(existing, object, workspace) == nil
    }

    /// Lets `body` make something under a temporary name, and gives it its own.
    /// - Parameter body: returns what is to be kept open until then: while it is locked, it is nobody's leftover.
    /// - Returns: false where something has the name meanwhile, as another transfer may have made it: what was made is gone.
    private func publish(
        _ object: SourceObject<Source.Item>, in directory: Directory, isReplacing: Bool,
        _ body: ([UInt8]) throws(TransferFailure) -> Destination.Item?
    ) throws(TransferFailure) -> Bool {
        let name = try writing(object.path) { () throws(StoreError) in try TemporaryName.make() }
        do throws(TransferFailure) {
            let made = try body(name)
            return try withExtendedLifetime(made) { () throws(TransferFailure) in
                try writing(object.path) { () throws(StoreError) in
                    try rename(name, to: object.name, in: directory.destination, isReplacing: isReplacing)
                }
            }
        } catch {
            // Where nothing was made there is nothing to remove.
            try? destination.remove(name, in: directory.destination)
            throw error
        }
    }

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

    private func make(
        _ object: SourceObject<Source.Item>, as name: [UInt8], in directory: Destination.Item,
        _ workspace: Workspace
    ) throws(TransferFailure) -> Destination.Item {
        switch object.kind {
        case S_IFREG:
            let content = try reading { () throws(StoreError) in try source.open(object.item, workspace) }
            let (made, file) = try writing(object.path) { () throws(StoreError) in
                try destination.makeFile(name, in: directory)
            }
            try fill(file, from: content, of: object, workspace)
            return made
        case S_IFLNK:
            let target = try reading { () throws(StoreError) in try source.linkTarget(of: object.item) }
            return try writing(object.path) { () throws(StoreError) in
                try destination.makeLink(name, to: target, in: directory)
            }
        default:
            return try writing(object.path) { () throws(StoreError) in
                try destination.makeNode(name, like: object.status, in: directory)
            }
        }
    }

    // MARK: Hard links

    /// Gives another name to what is at a path below the destination.
    private func link(
        _ object: SourceObject<Source.Item>, to path: [UInt8], _ existing: Destination.Item?, in directory: Directory,
        _ workspace: Workspace
    ) throws(TransferFailure) {
        let first = try writing(object.path) { () throws(StoreError) in try item(at: path) }
        if let existing {
            let (one, other) = try writing(object.path) { () throws(StoreError) in
                (try destination.status(of: existing), try destination.status(of: first))
            }
            if one.st_ino == other.st_ino && one.st_dev == other.st_dev { return count { $0.present += 1 } }
            guard try mayBecomeLink(existing, object, workspace) else { throw .differs }
        }
        let isPublished = try publish(object, in: directory, isReplacing: existing != nil) {
            (name) throws(TransferFailure) in
            try writing(object.path) { () throws(StoreError) in
                try destination.link(first, as: name, in: directory.destination)
            }
            return nil
        }
        guard isPublished else {
            guard let other = try self.existing(object, in: directory) else { throw .differs }
            return try link(object, to: path, other, in: directory, workspace)
        }
        count { $0.hardLinks += 1 }
    }

    /// What is at a path below the destination's root, no link followed.
    func item(at path: [UInt8]) throws(StoreError) -> Destination.Item {
        guard var item = destinationRoot else { throw .system(.noSuchFileOrDirectory) }
        for name in path.split(separator: UInt8(ascii: "/")) {
            guard let next = try destination.find(Array(name), in: item) else {
                throw .system(.noSuchFileOrDirectory)
            }
            item = next
        }
        return item
    }
}
