import FileSystem
import LinuxSystem

@testable import FuseSession

/// A session with one worker, which gets READ requests of one thread.
struct OneWorker {
    /// The length and `read_flags` of a READ request.
    struct Read {
        var size: UInt32 = 4096
        var flags: UInt32 = 0
    }

    let client: UInt32
    var schedule = WorkerSchedule(WorkerScheduler())
    private var time = 0

    init(client: UInt32) { self.client = client }

    /// Serves requests that take 20 µs each.
    /// - Parameter wait: the time before each of them, in nanoseconds.
    mutating func serve(_ count: Int, _ read: Read = Read(), after wait: Int = 10_000) {
        let message = message(read)
        for _ in 0..<count {
            time += wait
            message.withUnsafeBytes { schedule.began($0, at: time) }
            time += 20_000
            _ = schedule.ended(at: time)
        }
    }

    /// Returns fuse_in_header and fuse_read_in (linux/fuse.h).
    private func message(_ read: Read) -> [UInt8] {
        func bytes(_ number: some FixedWidthInteger) -> [UInt8] { withUnsafeBytes(of: number, Array.init) }
        let header =
            bytes(UInt32(80)) + bytes(UInt32(15)) + [UInt8](repeating: 0, count: 24) + bytes(client) + bytes(UInt32(0))
        return header + bytes(UInt64(1)) + bytes(UInt64(0)) + bytes(read.size) + bytes(read.flags)
            + [UInt8](repeating: 0, count: 16)
    }
}
