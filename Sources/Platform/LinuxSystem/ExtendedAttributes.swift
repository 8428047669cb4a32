internal import CLinux
internal import SystemPackage

/// The extended attributes of one pinned inode, by the kernel's own link to its descriptor, because the *xattr calls
/// take no O_PATH descriptor. Any thread.
package struct ExtendedAttributes {
    private static let largestValue = 64 << 10  // XATTR_SIZE_MAX and XATTR_LIST_MAX, limits.h
    private static let commonValue = 1 << 10
    private let descriptor: Descriptor
    private let path: String

    package init(_ descriptor: Descriptor) {
        self.descriptor = descriptor
        path = "/proc/self/fd/\(descriptor.fd)"
    }

    /// getxattr(2).
    /// - Throws: `.system` with errno.
    package func value(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        try withCString(name) { (name) throws(StoreError) -> [UInt8] in
            try Self.read { linux_getxattr(path, name, $0, $1) }
        }
    }

    /// getxattr(2), with one call for a value that is not large. Nil if there is no such attribute.
    /// - Throws: `.system` with errno.
    package func valueIfPresent(of name: [UInt8]) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            return try withCString(name) { (name) throws(StoreError) -> [UInt8] in
                let call = { (buffer: UnsafeMutableRawPointer?, size: Int) in linux_getxattr(path, name, buffer, size) }
                do throws(StoreError) { return try Self.fill(Self.commonValue, call) } catch .system(.outOfRange) {
                    return try Self.fill(Self.largestValue, call)
                }
            }
        } catch .system(.noData) { return nil }
    }

    /// listxattr(2).
    /// - Throws: `.system` with errno.
    package func names() throws(StoreError) -> [[UInt8]] {
        try Self.read { linux_listxattr(path, $0?.assumingMemoryBound(to: CChar.self), $1) }
            .split(separator: 0).map { Array($0) }
    }

    /// True if there are none but `user.*`.
    /// - Throws: `.system` with errno.
    package func areOnlyUser() throws(StoreError) -> Bool {
        try Self.areOnlyUser { linux_listxattr(path, $0, $1) }
    }

    /// The same of an entry of a directory, not following a link.
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
            // The store has no attributes. The kernel would refuse access if it got this error for an ACL (fuse_get_acl in
            // fs/fuse/acl.c).
            return true
        }
    }

    /// The same. Empty if the store has no extended attributes.
    /// - Throws: `.system` with errno.
    package func namesIfSupported() throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) { return try names() } catch .system(.notSupported) { return [] }
    }

    /// Calls `call`, which takes a buffer and its size, first for the size of the result, which is nearly always small.
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

    /// setxattr(2). If it fails, the attribute is as before.
    /// - Throws: `.system` with errno.
    package func set(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        if flags & linux_XATTR_CREATE != 0 { return try set(name, value, flags: flags, replacing: nil) }
        let old: [UInt8]?
        do throws(StoreError) { old = try valueIfPresent(of: name) } catch {
            // Nothing is known that could be put back.
            return try call(name, value, flags: flags)
        }
        try set(name, value, flags: flags, replacing: old)
    }

    /// Does the same.
    /// - Parameter old: the value before. Nil if there is no such attribute.
    /// - Throws: `.system` with errno.
    package func set(_ name: [UInt8], _ value: [UInt8], flags: Int32, replacing old: [UInt8]?) throws(StoreError) {
        do throws(StoreError) { try call(name, value, flags: flags) } catch {
            // These are answers about the flags.
            if error != .system(.fileExists), error != .system(.noData) { putBack(name, old) }
            throw error
        }
    }

    private func call(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        try retrying(name) { linux_setxattr(path, $0, value, value.count, flags) }
    }

    /// Undoes what a failed call has done: on a full disk ntfs-3g leaves an attribute without a value, where other
    /// stores change nothing. If the old value cannot be put back, what is left stays: it is damage that a reader
    /// notices, not a silent loss.
    private func putBack(_ name: [UInt8], _ old: [UInt8]?) {
        do throws(StoreError) {
            if try valueIfPresent(of: name) == old { return }
            if let old { try call(name, old, flags: 0) } else { try remove(name) }
        } catch {
            // The caller throws the error of the change.
        }
    }

    /// removexattr(2).
    /// - Throws: `.system` with errno.
    package func remove(_ name: [UInt8]) throws(StoreError) { try retrying(name) { linux_removexattr(path, $0) } }
}
