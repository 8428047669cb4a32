/// What `status` tells of the kernel's requests: totals since the mount.
package struct RequestStatistics: Codable, Sendable, Equatable {
    package let served: UInt64
    /// Times that one worker has begun to serve a program alone, on its core.
    package let clientsFollowed: UInt64
}
