internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension TreeTransfer {
    /// Gives a copy its source's owner, extended attributes, mode and times. Counts what is not permitted or not
    /// supported at the destination.
    func keep(
        _ status: stat, of item: Source.Item, on made: Destination.Item, path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        if options.contentsOnly {
            // A directory was made for this user, or keeps its mode.
            if status.st_mode & S_IFMT == S_IFREG { try keepMode(status.st_mode & 0o700, on: made, path, workspace) }
            return try keepTimes(status, AttributeChanges(), on: made, path, workspace)
        }
        let before = try writing(path, try destination.status(of: made))
        let isOwned = try keepOwner(status, before, on: made, path, workspace)
        // User attributes can be set only on a writable file, so set them before the mode. An ACL changes the mode, so
        // set it afterwards.
        let all = try reading(try source.attributeNames(of: item))
        let names = options.dropsSpecial ? all.filter { $0 != Self.capabilities } : all
        var isKept = names.count == all.count
        if try !keepAttributes(names.filter { !Self.isACL($0) }, of: item, on: made, path) { isKept = false }
        if status.st_mode & S_IFMT != S_IFLNK {
            // On a directory the bits only choose the group of new files.
            let setsID = status.st_mode & S_IFMT != S_IFDIR && status.st_mode & 0o6000 != 0
            if options.dropsSpecial && setsID { count { $0.lost.modes += 1 } }
            // A set-user-ID program must not run as another user.
            let mode = status.st_mode & (isOwned && !(options.dropsSpecial && setsID) ? 0o7777 : 0o1777)
            try keepMode(mode, on: made, path, workspace)
        }
        if try !keepAttributes(names.filter(Self.isACL), of: item, on: made, path) { isKept = false }
        if try !removeAttributes(notIn: names, of: made, path) { isKept = false }
        if !isKept { count { $0.lost.attributes += 1 } }
        try keepTimes(status, AttributeChanges(), on: made, path, workspace)
    }

    /// Restores what a kill during a seal has changed: a file's times, set-id bits and capabilities.
    func restoreTimes(
        _ status: stat, of item: Source.Item, on made: Destination.Item, _ found: stat, path: [UInt8],
        _ workspace: Workspace
    ) throws(TransferFailure) {
        var changes = AttributeChanges()
        if status.st_uid == found.st_uid && status.st_gid == found.st_gid && !options.dropsSpecial {
            if let value = try? source.attribute(Self.capabilities, of: item) {
                _ = try isPermitted(path) { () throws(StoreError) in
                    try destination.setAttribute(Self.capabilities, value, of: made)
                }
            }
            if status.st_mode != found.st_mode { changes.mode = status.st_mode & 0o7777 }
        }
        try keepTimes(status, changes, on: made, path, workspace)
    }

    private func keepMode(
        _ mode: mode_t, on made: Destination.Item, _ path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        var changes = AttributeChanges()
        changes.mode = mode
        try keep(path, \.modes) { () throws(StoreError) in try destination.change(made, changes, workspace) }
    }

    /// - Parameter others: made in the same call.
    private func keepTimes(
        _ status: stat, _ others: AttributeChanges, on made: Destination.Item, _ path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        var changes = others
        changes.accessTime = status.st_atim
        changes.modificationTime = status.st_mtim
        try keep(path, \.times) { () throws(StoreError) in try destination.change(made, changes, workspace) }
    }

    private static var capabilities: [UInt8] { Array("security.capability".utf8) }

    private static func isACL(_ name: [UInt8]) -> Bool { name.starts(with: Array("system.posix_acl_".utf8)) }

    /// Returns true if the copy has its source's owner.
    private func keepOwner(
        _ status: stat, _ before: stat, on made: Destination.Item, _ path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) -> Bool {
        if status.st_uid == before.st_uid && status.st_gid == before.st_gid { return true }
        return try keep(path, \.owners) { () throws(StoreError) in
            var changes = AttributeChanges()
            // An owner may change the group to any group they belong to (chown(2)).
            changes.gid = status.st_gid
            if status.st_uid != before.st_uid { changes.uid = status.st_uid }
            try destination.change(made, changes, workspace)
        }
    }

    /// Runs `body`. Counts a refusal and returns false.
    @discardableResult
    private func keep(
        _ path: [UInt8], _ lost: WritableKeyPath<TransferTotals.Lost, Int>,
        _ body: () throws(StoreError) -> Void
    ) throws(TransferFailure) -> Bool {
        if try isPermitted(path, body) { return true }
        count { $0.lost[keyPath: lost] += 1 }
        return false
    }

    private func isPermitted(
        _ path: [UInt8], _ body: () throws(StoreError) -> Void
    ) throws(TransferFailure) -> Bool {
        // setxattr(2) returns the last three if an attribute has no room.
        let refusals: [Errno] = [
            .notPermitted, .permissionDenied, .notSupported, .invalidArgument, .outOfRange, .argListTooLong, .noSpace,
        ]
        do throws(StoreError) {
            try body()
            return true
        } catch {
            guard case .system(let errno) = error, refusals.contains(errno) else {
                throw TransferFailure(writing: path, error)
            }
            return false
        }
    }

    // MARK: Extended attributes

    /// Returns true if all could be kept.
    private func keepAttributes(
        _ names: [[UInt8]], of item: Source.Item, on made: Destination.Item, _ path: [UInt8]
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
            let isSet = try isPermitted(path) { () throws(StoreError) in
                try destination.setAttribute(name, value, of: made)
            }
            // The policy of the destination sets the label.
            if !isSet && name != Array("security.selinux".utf8) { isKept = false }
        }
        return isKept
    }

    /// Removes other attributes: a new file may have an ACL from its directory, and an existing directory any.
    private func removeAttributes(
        notIn names: [[UInt8]], of made: Destination.Item, _ path: [UInt8]
    ) throws(TransferFailure) -> Bool {
        let wanted = Set(names)
        var isKept = true
        let present = try writing(path, try destination.attributeNames(of: made))
        for name in present where !wanted.contains(name) && name != Array("security.selinux".utf8) {
            let isRemoved = try isPermitted(path) { () throws(StoreError) in
                try destination.removeAttribute(name, of: made)
            }
            if !isRemoved { isKept = false }
        }
        return isKept
    }
}
