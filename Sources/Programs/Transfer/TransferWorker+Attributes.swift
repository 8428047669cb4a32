internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

private let capabilities = Array("security.capability".utf8)
/// Set by the security policy of the destination, so a different label is no loss.
private let label = Array("security.selinux".utf8)

extension TransferWorker {
    /// Gives a copy its source's owner, extended attributes, mode and times. Counts those refused or not supported.
    func keep(_ status: stat, of item: Source.Item, on made: Destination.Item) throws(TransferFailure) {
        let kind = status.st_mode & S_IFMT
        if options.contentsOnly {
            // A directory was made with mode 0700, or keeps its mode.
            if kind == S_IFREG { try keep(\.modes, on: made) { $0.mode = status.st_mode & 0o700 } }
            return try keepTimes(status, on: made)
        }
        let before = try writing(try destination.status(of: made))
        var isOwned = status.st_uid == before.st_uid && status.st_gid == before.st_gid
        if !isOwned && !options.dropsOwners {
            isOwned = try keep(\.owners, on: made) { changes in
                // An owner may change the group to any group they belong to (chown(2)).
                changes.gid = status.st_gid
                if status.st_uid != before.st_uid { changes.uid = status.st_uid }
            }
        }
        // User attributes can be set only on a writable file, so set them before the mode. An ACL changes the mode, so
        // set it afterwards.
        func isACL(_ name: [UInt8]) -> Bool { name.starts(with: Array("system.posix_acl_".utf8)) }
        let all = try reading(try supported(try source.attributeNames(of: item)))
        let names = options.dropsSpecial ? all.filter { $0 != capabilities } : all
        var isKept = names.count == all.count
        isKept = try keepAttributes(names.filter { !isACL($0) }, of: item, on: made) && isKept
        if kind != S_IFLNK {
            // On a directory the bits only choose the group of new files.
            let setsID = kind != S_IFDIR && status.st_mode & 0o6000 != 0
            if options.dropsSpecial && setsID { count { $0.notKept.modes += 1 } }
            // Without its source's owner, a set-user-ID program must not run as another user.
            let mode = status.st_mode & (isOwned && !(options.dropsSpecial && setsID) ? 0o7777 : 0o1777)
            try keep(\.modes, on: made) { $0.mode = mode }
        }
        isKept = try keepAttributes(names.filter(isACL), of: item, on: made) && isKept
        isKept = try removeAttributes(notIn: names, of: made) && isKept
        if !isKept { count { $0.notKept.attributes += 1 } }
        try keepTimes(status, on: made)
    }

    /// Restores a file's times, set-id bits and capabilities, which a kill during a seal has changed.
    func restoreTimes(
        _ status: stat, of item: Source.Item, on made: Destination.Item, _ found: stat
    ) throws(TransferFailure) {
        let keepsRights = status.st_uid == found.st_uid && status.st_gid == found.st_gid && !options.dropsSpecial
        if keepsRights, let value = try? source.attribute(capabilities, of: item) {
            _ = try isPermitted(try destination.setAttribute(capabilities, value, of: made))
        }
        try keepTimes(status, on: made, withMode: keepsRights && status.st_mode != found.st_mode)
    }

    /// Sets the times, and counts a refusal.
    /// - Parameter withMode: also sets the mode, in the same call.
    private func keepTimes(_ status: stat, on made: Destination.Item, withMode: Bool = false) throws(TransferFailure) {
        try keep(\.times, on: made) { changes in
            changes.setTimes(of: status)
            if withMode { changes.mode = status.st_mode & 0o7777 }
        }
    }

    /// Changes attributes. Counts a refusal and returns false.
    @discardableResult
    private func keep(
        _ attribute: WritableKeyPath<TransferTotals.NotKept, Int>, on made: Destination.Item,
        _ set: (inout AttributeChanges) -> Void
    ) throws(TransferFailure) -> Bool {
        if try isPermitted(try change(made, set)) { return true }
        count { $0.notKept[keyPath: attribute] += 1 }
        return false
    }

    func change(_ item: Destination.Item, _ set: (inout AttributeChanges) -> Void) throws(StoreError) {
        var changes = AttributeChanges()
        set(&changes)
        try destination.change(item, changes, workspace)
    }

    private func isPermitted(_ body: @autoclosure () throws(StoreError) -> Void) throws(TransferFailure) -> Bool {
        // setxattr(2) returns the last two, or ENOSPC, if an attribute has no room.
        let refusals: [Errno] = [
            .notPermitted, .permissionDenied, .notSupported, .invalidArgument, .outOfRange, .argListTooLong,
        ]
        do throws(StoreError) {
            try body()
            return true
        } catch {
            guard case .system(let errno) = error, errno.isNoSpace || refusals.contains(errno) else {
                throw TransferFailure(writing: error)
            }
            return false
        }
    }

    // MARK: Extended attributes

    /// Returns an empty list for a file system without extended attributes.
    private func supported(_ names: @autoclosure () throws(StoreError) -> [[UInt8]]) throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) { return try names() } catch .system(.notSupported) { return [] }
    }

    /// Copies these attributes. Returns true if the destination has kept all of them.
    private func keepAttributes(
        _ names: [[UInt8]], of item: Source.Item, on made: Destination.Item
    ) throws(TransferFailure) -> Bool {
        var isKept = true
        for name in names {
            let value: [UInt8]
            do throws(StoreError) {
                value = try source.attribute(name, of: item)
            } catch .system(.noData) {
                continue
            } catch {
                throw TransferFailure(reading: error)
            }
            let isSet = try isPermitted(try destination.setAttribute(name, value, of: made))
            if !isSet && name != label { isKept = false }
        }
        return isKept
    }

    /// Removes other attributes. A new file may have an ACL from its directory, and an existing directory anything.
    private func removeAttributes(notIn names: [[UInt8]], of made: Destination.Item) throws(TransferFailure) -> Bool {
        var isKept = true
        let wanted = Set(names)
        for name in try writing(try supported(try destination.attributeNames(of: made)))
        where !wanted.contains(name) && name != label {
            if try !isPermitted(try destination.setAttribute(name, nil, of: made)) { isKept = false }
        }
        return isKept
    }
}

extension AttributeChanges {
    mutating func setTimes(of status: stat) { (accessTime, modificationTime) = (status.st_atim, status.st_mtim) }
}
