internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// One run of a shell command, with its output. One thread.
package struct CommandRun {
    package enum End: Equatable {
        case ended(ChildProcess.Outcome)
        case tooLong
        case tooMuch
        case cancelled
    }

    /// The output so far, in memory that the caller wipes.
    package struct Report {
        /// For stdout. The run ends as `tooMuch` when it is full.
        let output: UnsafeMutableRawBufferPointer
        /// For stderr, `errorSize` bytes. Keeps the first half, and uses the second to read and drop the rest.
        let errors: UnsafeMutableRawBufferPointer
        package fileprivate(set) var outputCount = 0
        package fileprivate(set) var errorCount = 0

        package init(output: UnsafeMutableRawBufferPointer, errors: UnsafeMutableRawBufferPointer) {
            (self.output, self.errors) = (output, errors)
        }

        var printed: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: output[..<outputCount]) }
        var complaints: UnsafeRawBufferPointer { UnsafeRawBufferPointer(rebasing: errors[..<errorCount]) }
    }

    package static let errorSize = 8192
    /// Timeout for the end of a killed command, in milliseconds. A command that is blocked in the kernel, on a dead server
    /// or on our own mount, can take any time.
    private static let killTimeout = 1000

    private let child: pid_t
    private let childEnd: Descriptor
    private let output: Descriptor
    private let errors: Descriptor

    /// Starts `/bin/sh -c command` in a session of its own.
    /// - Parameters:
    ///   - environment: nil for that of this process.
    ///   - input: its stdin. Nil for /dev/null.
    /// - Throws: the error of pipe2(2), posix_spawn(3) or pidfd_open(2).
    package init(command: [UInt8], environment: [[UInt8]]? = nil, input: Descriptor? = nil) throws(StoreError) {
        let source: Descriptor
        if let input {
            source = input
        } else {
            source = Descriptor(owning: try retrying { open("/dev/null", O_RDONLY | O_CLOEXEC) })
        }
        let outputPipe = try Self.pipe()
        let errorPipe = try Self.pipe()
        do throws(Errno) {
            child = try ChildProcess.spawn(
                path: "/bin/sh", arguments: [[UInt8]("sh".utf8), [UInt8]("-c".utf8), command],
                environment: environment,
                descriptors: [
                    (source.fd, STDIN_FILENO), (outputPipe.write.fd, STDOUT_FILENO),
                    (errorPipe.write.fd, STDERR_FILENO),
                ], closesOthers: true, isSessionLeader: true)
        } catch {
            throw .system(error)
        }
        let fd = linux_pidfd_open(child)
        guard fd >= 0 else {
            let error = currentErrno()
            kill(-child, SIGKILL)
            _ = ChildProcess.wait(for: child)
            throw .system(error)
        }
        childEnd = Descriptor(owning: fd)
        output = outputPipe.read
        errors = errorPipe.read
    }

    /// Both ends are close-on-exec. Reads do not block.
    private static func pipe() throws(StoreError) -> (read: Descriptor, write: Descriptor) {
        var ends: [Int32] = [-1, -1]
        try retrying { linux_pipe(&ends) }
        let (read, write) = (Descriptor(owning: ends[0]), Descriptor(owning: ends[1]))
        try retrying { fcntl(read.fd, F_SETFL, O_NONBLOCK) }
        return (read, write)
    }

    /// Reads the output until the command ends, or kills its process group at the limit, at too much output, or at the
    /// stop signal. On return the child is reaped, or will be when the kernel releases it.
    package func finish(
        within limit: Duration, stopSignal: Waker, _ report: inout Report
    ) throws(StoreError) -> End {
        let (seconds, attoseconds) = limit.components
        let deadline = monotonicMilliseconds() + Int(seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000)
        do throws(StoreError) {
            if let reason = try follow(until: deadline, stopSignal: stopSignal, &report) {
                killAll()
                return reason
            }
        } catch {
            killAll()
            throw error
        }
        return .ended(ChildProcess.wait(for: child))
    }

    /// Returns nil when the child has ended and its output is read. Does not wait for the end of the pipes, which a process
    /// that the child left behind can keep open.
    private func follow(until deadline: Int, stopSignal: Waker, _ report: inout Report) throws(StoreError) -> End? {
        var polled = [childEnd.fd, stopSignal.fd, output.fd, errors.fd].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        while true {
            let left = deadline - monotonicMilliseconds()
            guard left > 0 else { return .tooLong }
            _ = try retrying { poll(&polled, nfds_t(polled.count), Int32(clamping: left)) }
            if polled[1].revents != 0 { return .cancelled }
            // Before the pipes are read: at its end, all output of the child is in them.
            let hasEnded = polled[0].revents != 0
            // Remove a pipe at its end, because it would stay readable.
            if polled[2].revents != 0, try !readOutput(&report) { polled[2].fd = -1 }
            if polled[3].revents != 0, try !readErrors(&report) { polled[3].fd = -1 }
            if report.outputCount == report.output.count { return .tooMuch }
            if hasEnded { return nil }
        }
    }

    /// Reads without blocking. Returns false at the end.
    private func readOutput(_ report: inout Report) throws(StoreError) -> Bool {
        while report.outputCount < report.output.count {
            let room = UnsafeMutableRawBufferPointer(rebasing: report.output[report.outputCount...])
            guard let count = try Self.readNow(output, into: room) else { return true }
            if count == 0 { return false }
            report.outputCount += count
        }
        return true
    }

    /// Like `readOutput`, but only one piece, so that endless errors cannot delay the deadline.
    private func readErrors(_ report: inout Report) throws(StoreError) -> Bool {
        let room = UnsafeMutableRawBufferPointer(rebasing: report.errors[report.errorCount...])
        guard let count = try Self.readNow(errors, into: room) else { return true }
        report.errorCount = min(report.errorCount + count, Self.errorSize / 2)
        return count != 0
    }

    /// read(2). Nil if there is nothing to read now.
    private static func readNow(
        _ pipe: Descriptor, into buffer: UnsafeMutableRawBufferPointer
    ) throws(StoreError) -> Int? {
        do throws(StoreError) {
            return try retrying { read(pipe.fd, buffer.baseAddress, buffer.count) }
        } catch {
            if error == .system(.resourceTemporarilyUnavailable) { return nil }
            throw error
        }
    }

    /// Kills the group and reaps the child. Until it is reaped, no other process gets its number.
    private func killAll() {
        kill(-child, SIGKILL)
        var polled = pollfd(fd: childEnd.fd, events: Int16(POLLIN), revents: 0)
        let isDead = try? retrying { poll(&polled, 1, Int32(Self.killTimeout)) } == 1
        if isDead == true {
            _ = ChildProcess.wait(for: child)
            return
        }
        let child = child
        // If there is no thread, the child stays a zombie until this process ends. That is better than blocking here.
        try? BackgroundThread { _ = ChildProcess.wait(for: child) }.detach()
    }
}
