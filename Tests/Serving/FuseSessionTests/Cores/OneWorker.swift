import FileSystem
import LinuxSystem

@testable import FuseSession

/// A session with one worker, which gets requests of one thread.
struct OneWorker {
    /// The length and `read_flags` of a READ request, or another one.
    struct Message {
        var size: UInt32 = 4096
        var flags: UInt32 = 0
        /// FUSE_READ.
        var operation: UInt32 = 15

        /// The close(2) of a file, which returns before the answer.
        static let release = Message(operation: 18)
    }

    /// The thread. By default its number is above all threads' (PID_MAX_LIMIT, proc(5)), so it has no core.
    var client: UInt32 = 1 << 22 + 1
    let scheduler = WorkerScheduler()
    private(set) var schedule: WorkerSchedule
    private var time = 0

    init() { schedule = WorkerSchedule(scheduler) }

    init(client: UInt32) {
        self.init()
        self.client = client
    }

    /// Serves requests.
    /// - Parameters:
    ///   - wait: the time before each of them, in nanoseconds.
    ///   - duration: of each.
    ///   - body: called during each.
    mutating func serve(
        _ count: Int, _ message: Message = Message(), after wait: Int = 10_000, for duration: Int = 20_000,
        during body: () -> Void = {}
    ) {
        let message = bytes(message)
        for _ in 0..<count {
            time += wait
            message.withUnsafeBytes { schedule.began($0, at: time) }
            body()
            time += duration
            _ = schedule.ended(at: time)
        }
    }

    /// Returns fuse_in_header and fuse_read_in (linux/fuse.h).
    private func bytes(_ message: Message) -> [UInt8] {
        func bytes(_ number: some FixedWidthInteger) -> [UInt8] { withUnsafeBytes(of: number, Array.init) }
        let header =
            bytes(UInt32(80)) + bytes(message.operation) + [UInt8](repeating: 0, count: 24) + bytes(client)
            + bytes(UInt32(0))
        return header + bytes(UInt64(1)) + bytes(UInt64(0)) + bytes(message.size) + bytes(message.flags)
            + [UInt8](repeating: 0, count: 16)
    }
}

extension OneWorker {
    /// Serves requests that come sooner if the worker polls. Returns how often it has polled.
    mutating func servePolled(_ count: Int) -> Int {
        (0..<count).count { _ in
            serve(1, after: schedule.polls ? 10_000 : 20_000)
            return schedule.polls
        }
    }
}
