internal import Glibc

/// The first two numbers of a Linux release (uname(2)).
struct KernelRelease: Comparable {
    var major, minor: Int

    /// The first release in which a notification about a missing name returns without the directory's lock
    /// (fuse_reverse_inval_entry in fs/fuse/dir.c). A lock then cannot find out when the names of a listing are linked,
    /// which get the epoch of that moment. Names of other replies get the request's epoch.
    static let withoutDirectoryLock = Self(major: 6, minor: 19)

    static let current = {
        var system = utsname()
        uname(&system)
        return withUnsafeBytes(of: system.release) { Self($0.prefix { $0 != 0 }) }
    }()

    /// - Parameter release: such as `6.18.44-generic`. An unreadable number counts as 0.
    init(_ release: some Collection<UInt8>) {
        let numbers = release.split(whereSeparator: { !(UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
            .prefix(2).map { Int(String(decoding: $0, as: UTF8.self)) ?? 0 }
        self.init(major: numbers.first ?? 0, minor: numbers.dropFirst().first ?? 0)
    }

    init(major: Int, minor: Int) { (self.major, self.minor) = (major, minor) }

    static func < (left: Self, right: Self) -> Bool { (left.major, left.minor) < (right.major, right.minor) }
}
