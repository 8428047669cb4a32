internal import CLinux
internal import Glibc
internal import LinuxSystem

/// Waits for what a command writes: without an end while it runs, then for a while. What it left in the background may keep
/// its output open for ever. One thread.
struct OutputPatience {
    /// How long the output may go on when the command has ended, in milliseconds.
    private static let limit = 5000

    private let output: Int32
    private let childEnd: Descriptor
    private let option: String
    /// CLOCK_MONOTONIC; nil while the command runs.
    private var deadline: Int?

    /// - Parameters:
    ///   - output: the pipe that the command writes into.
    ///   - option: which gave the command, for errors.
    init(output: Int32, child: pid_t, option: String) throws(CommandFailure) {
        let fd = linux_pidfd_open(child)
        guard fd >= 0 else {
            throw CommandFailure(.failure, "cannot wait for the \(option) command: \(currentErrno())")
        }
        (self.output, childEnd, self.option) = (output, Descriptor(owning: fd), option)
    }

    /// Returns when there is something to read, or the output has ended.
    /// - Throws: where it does not end (pidfd_open(2), poll(2)).
    mutating func wait() throws(CommandFailure) {
        while true {
            let left = deadline.map { max(0, $0 - monotonicMilliseconds()) }
            // poll(2) passes over a negative descriptor.
            var polled = [
                pollfd(fd: output, events: Int16(POLLIN), revents: 0),
                pollfd(fd: left == nil ? childEnd.fd : -1, events: Int16(POLLIN), revents: 0),
            ]
            let count: Int32
            do throws(StoreError) {
                count = try retrying { poll(&polled, nfds_t(polled.count), Int32(clamping: left ?? -1)) }
            } catch {
                throw CommandFailure(.failure, "cannot wait for the \(option) command: \(error.errno)")
            }
            if polled[0].revents != 0 { return }
            guard count > 0 else {
                throw CommandFailure(
                    .failure,
                    "the \(option) command has ended, and something it left running keeps its output open: redirect that"
                )
            }
            deadline = monotonicMilliseconds() + Self.limit
        }
    }
}
