internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// The extended attributes of one pinned inode, by the kernel's own link to its descriptor: the *xattr calls take no
/// O_PATH descriptor. Any thread.
package struct ExtendedAttributes {
    private static let largestValue = 64 << 10  // XATTR_SIZE_MAX and XATTR_LIST_MAX, limits.h
    private let descriptor: Descriptor
    private let path: String

    package init(_ descriptor: Descriptor) {
        self.descriptor = descriptor
        path = "/proc/self/fd/\(descriptor.fd)"
    }

    /// getxattr(2).
    package func value(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        try withCString(name) { (name) throws(StoreError) -> [UInt8] in
            // Nearly always it is not there, and then no buffer is needed.
            let size = try retrying { linux_getxattr(path, name, nil, 0) }
            if size == 0 { return [] }
            var value = [UInt8](repeating: 0, count: Self.largestValue)
            let count = try retrying { linux_getxattr(path, name, &value, Self.largestValue) }
            value.removeLast(value.count - count)
            return value
        }
    }

    /// listxattr(2).
    package func names() throws(StoreError) -> [[UInt8]] {
        let size = try retrying { linux_listxattr(path, nil, 0) }
        if size == 0 { return [] }
        var list = [CChar](repeating: 0, count: Self.largestValue)
        let count = try retrying { linux_listxattr(path, &list, Self.largestValue) }
        return list[..<count].split(separator: 0).map { $0.map { UInt8(bitPattern: $0) } }
    }

    /// setxattr(2).
    package func set(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { linux_setxattr(path, name, value, value.count, flags) }
        }
    }

    /// removexattr(2).
    package func remove(_ name: [UInt8]) throws(StoreError) {
        try withCString(name) { (name) throws(StoreError) in
            _ = try retrying { linux_removexattr(path, name) }
        }
    }
}
