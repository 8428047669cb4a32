internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

extension TreeTransfer {
    /// Gives what was made its source's owner, extended attributes, mode and times. What is not permitted here, or not
    /// known to the file system, is counted.
    func keep(
        _ status: stat, of item: Source.Item, on made: Destination.Item, path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        let before = try writing(path) { () throws(StoreError) in try destination.status(of: made) }
        let isOwned = try keepOwner(status, before, on: made, path, workspace)
        // Attributes of programs take a file that can be written, and an ACL changes the mode.
        let all = try reading { () throws(StoreError) in try source.attributeNames(of: item) }
        let names = options.dropsSpecial ? all.filter { $0 != Self.capabilities } : all
        var isKept = names.count == all.count
        if try !keepAttributes(names.filter { !Self.isACL($0) }, of: item, on: made, path) { isKept = false }
        if status.st_mode & S_IFMT != S_IFLNK {
            // Of a directory they say whose group new files get, and no more.
            let setsID = status.st_mode & S_IFMT != S_IFDIR && status.st_mode & 0o6000 != 0
            if options.dropsSpecial && setsID { count { $0.lost.modes += 1 } }
            // What runs as its owner is not to run as another.
            let mode = status.st_mode & (isOwned && !(options.dropsSpecial && setsID) ? 0o7777 : 0o1777)
            try keep(path, \.modes) { () throws(StoreError) in
                var changes = AttributeChanges()
                changes.mode = mode
                try destination.change(made, changes, workspace)
            }
        }
        if try !keepAttributes(names.filter(Self.isACL), of: item, on: made, path) { isKept = false }
        if try !removeAttributes(notIn: names, of: made, path) { isKept = false }
        if !isKept { count { $0.lost.attributes += 1 } }
        try keep(path, \.times) { () throws(StoreError) in
            var changes = AttributeChanges()
            changes.accessTime = status.st_atim
            changes.modificationTime = status.st_mtim
            try destination.change(made, changes, workspace)
        }
    }

    /// Gives a file back what a kill within a seal has taken: its times, and what lets it act as its owner.
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
        changes.accessTime = status.st_atim
        changes.modificationTime = status.st_mtim
        try keep(path, \.times) { () throws(StoreError) in try destination.change(made, changes, workspace) }
    }

    private static var capabilities: [UInt8] { Array("security.capability".utf8) }

    private static func isACL(_ name: [UInt8]) -> Bool { name.starts(with: Array("system.posix_acl_".utf8)) }

    /// Returns whether it has the owner that it is to have.
    private func keepOwner(
        _ status: stat, _ before: stat, on made: Destination.Item, _ path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) -> Bool {
        if status.st_uid == before.st_uid && status.st_gid == before.st_gid { return true }
        return try keep(path, \.owners) { () throws(StoreError) in
            var changes = AttributeChanges()
            // Whose group it is an owner may choose among his own.
            changes.gid = status.st_gid
            if status.st_uid != before.st_uid { changes.uid = status.st_uid }
            try destination.change(made, changes, workspace)
        }
    }

    /// Runs `body`; where it is refused, counts that and returns false.
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
        // setxattr(2) gives the last three where an attribute has no room.
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

    /// Returns whether all could be kept.
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
            // A label is given by the policy that is in force at the destination.
            if !isSet && name != Array("security.selinux".utf8) { isKept = false }
        }
        return isKept
    }

    /// A new file may have got an ACL from its directory, and a directory that was there may have others.
    private func removeAttributes(
        notIn names: [[UInt8]], of made: Destination.Item, _ path: [UInt8]
    ) throws(TransferFailure) -> Bool {
        let wanted = Set(names)
        var isKept = true
        let present = try writing(path) { () throws(StoreError) in try destination.attributeNames(of: made) }
        for name in present where !wanted.contains(name) && name != Array("security.selinux".utf8) {
            let isRemoved = try isPermitted(path) { () throws(StoreError) in
                try destination.removeAttribute(name, of: made)
            }
            if !isRemoved { isKept = false }
        }
        return isKept
    }
}
