internal import CLinux
internal import SystemPackage

/// The extended attributes of one pinned inode, through the kernel's own link to its descriptor, because the *xattr
/// calls refuse O_PATH descriptors. Any thread.
package struct ExtendedAttributes {
    private static let largestValue = 64 << 10  // XATTR_SIZE_MAX and XATTR_LIST_MAX, limits.h
    private static let commonValue = 1 << 10
    private let descriptor: Descriptor
    private let path: String

    package init(_ descriptor: Descriptor) {
        self.descriptor = descriptor
        path = "/proc/self/fd/\(descriptor.fd)"
    }

    /// Returns an attribute's value, with one call unless it is large (getxattr(2)).
    /// - Throws: `.system` with errno.
    package func value(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        try withCString(name) { (name) throws(StoreError) -> [UInt8] in
            let call = { (buffer: UnsafeMutableRawPointer?, size: Int) in linux_getxattr(path, name, buffer, size) }
            do throws(StoreError) { return try Self.fill(Self.commonValue, call) } catch .system(.outOfRange) {
                return try Self.fill(Self.largestValue, call)
            }
        }
    }

    /// Does the same, but returns nil if the attribute is missing.
    /// - Throws: `.system` with errno.
    package func valueIfPresent(of name: [UInt8]) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) { return try value(of: name) } catch .system(.noData) { return nil }
    }

    /// Returns the names of all attributes (listxattr(2)).
    /// - Throws: `.system` with errno.
    package func names() throws(StoreError) -> [[UInt8]] {
        try Self.read { linux_listxattr(path, $0?.assumingMemoryBound(to: CChar.self), $1) }
            .split(separator: 0).map { Array($0) }
    }

    /// Returns true if all attributes are `user.*`.
    /// - Throws: `.system` with errno.
    package func areOnlyUser() throws(StoreError) -> Bool {
        try Self.areOnlyUser { linux_listxattr(path, $0, $1) }
    }

    /// Does the same for an entry of a directory, not following a link.
    /// - Throws: `.system` with errno.
    package static func areOnlyUser(of entry: Component, in directory: Descriptor) throws(StoreError) -> Bool {
        try withCString(entry.bytes) { (entry) throws(StoreError) in
            try areOnlyUser { linux_listxattrat(directory.fd, entry, $0, $1) }
        }
    }

    private static func areOnlyUser(_ list: (UnsafeMutablePointer<CChar>?, Int) -> Int) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try read { list($0?.assumingMemoryBound(to: CChar.self), $1) }
                .split(separator: 0).allSatisfy { $0.starts(with: "user.".utf8) }
        } catch .system(.notSupported) {
            // The store has no attributes. If the kernel got this error for an ACL, it would refuse access
            // (fuse_get_acl in fs/fuse/acl.c).
            return true
        }
    }

    /// Returns the names of all attributes. Empty if the store has no extended attributes.
    /// - Throws: `.system` with errno.
    package func namesIfSupported() throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) { return try names() } catch .system(.notSupported) { return [] }
    }

    /// Calls `call` with a buffer and its size, first to get the size of the result, which is nearly always small.
    private static func read(_ call: (UnsafeMutableRawPointer?, Int) -> Int) throws(StoreError) -> [UInt8] {
        let size = try retrying { call(nil, 0) }
        if size == 0 { return [] }
        do throws(StoreError) {
            return try fill(size, call)
        } catch .system(.outOfRange) {
            // The result grew between the two calls.
            return try fill(largestValue, call)
        }
    }

    private static func fill(
        _ size: Int, _ call: (UnsafeMutableRawPointer?, Int) -> Int
    ) throws(StoreError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: size)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) in
            try retrying { call(buffer.baseAddress, buffer.count) }
        }
        bytes.removeLast(size - count)
        return bytes
    }

    /// Sets an attribute (setxattr(2)). If this fails, puts the old value back as far as possible.
    /// - Throws: `.system` with errno.
    package func set(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        if flags & linux_XATTR_CREATE != 0 { return try set(name, value, flags: flags, replacing: nil) }
        let old: [UInt8]?
        do throws(StoreError) { old = try valueIfPresent(of: name) } catch {
            // Without the old value, nothing can be put back.
            return try call(name, value, flags: flags)
        }
        try set(name, value, flags: flags, replacing: old)
    }

    /// Does the same, with a known old value.
    /// - Parameter old: the value before. Nil if the attribute was missing.
    /// - Throws: `.system` with errno.
    package func set(_ name: [UInt8], _ value: [UInt8], flags: Int32, replacing old: [UInt8]?) throws(StoreError) {
        do throws(StoreError) { try call(name, value, flags: flags) } catch {
            // These errors are answers about the flags, and change nothing.
            if error != .system(.fileExists), error != .system(.noData) { putBack(name, old) }
            throw error
        }
    }

    private func call(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        try retrying(name) { linux_setxattr(path, $0, value, value.count, flags) }
    }

    /// Undoes the effect of a failed call: on a full disk ntfs-3g leaves an attribute without a value, where other
    /// stores change nothing. If the old value cannot be put back, the remains stay, because readers notice this
    /// damage, but not a silent loss.
    private func putBack(_ name: [UInt8], _ old: [UInt8]?) {
        do throws(StoreError) {
            if try valueIfPresent(of: name) == old { return }
            if let old { try call(name, old, flags: 0) } else { try remove(name) }
        } catch {
            // The caller throws the error of the change.
        }
    }

    /// Removes an attribute (removexattr(2)).
    /// - Throws: `.system` with errno.
    package func remove(_ name: [UInt8]) throws(StoreError) { try retrying(name) { linux_removexattr(path, $0) } }
}
