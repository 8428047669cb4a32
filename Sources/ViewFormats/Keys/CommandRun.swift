internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// One run of a shell command whose output is wanted. One thread.
package struct CommandRun {
    package enum End: Equatable {
        case ended(ChildProcess.Outcome)
        case tooLong
        case tooMuch
        case cancelled
    }

    /// What it wrote so far, in memory that the caller wipes.
    package struct Report {
        /// For stdout; full: it prints too much.
        let output: UnsafeMutableRawBufferPointer
        /// For stderr, `errorSize` bytes: what is beyond the first half is read and forgotten.
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
    /// How long a killed command is waited for, in milliseconds: one in the kernel (a file of a server that does not
    /// answer, or of our own mount) may take any time.
    private static let patienceWithDead = 1000

    private let child: pid_t
    private let childEnd: Descriptor
    private let output: Descriptor
    private let errors: Descriptor

    /// Starts `/bin/sh -c command` in a session of its own.
    /// - Parameters:
    ///   - environment: nil for this process's.
    ///   - input: for its stdin; nil for /dev/null.
    /// - Throws: what pipe2(2), posix_spawn(3) or pidfd_open(2) do.
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

    /// Two ends, close-on-exec; reading does not block.
    private static func pipe() throws(StoreError) -> (read: Descriptor, write: Descriptor) {
        var ends: [Int32] = [-1, -1]
        try retrying { linux_pipe(&ends) }
        let (read, write) = (Descriptor(owning: ends[0]), Descriptor(owning: ends[1]))
        try retrying { fcntl(read.fd, F_SETFL, O_NONBLOCK) }
        return (read, write)
    }

    /// Reads what it writes until it ends by itself or has to be ended: then its process group is killed. When this
    /// returns the child is reaped, or will be as soon as the kernel lets it go.
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
        let outcome = ChildProcess.wait(for: child)
        return .ended(outcome)
    }

    /// Returns nil when the child has ended and what it wrote is read. Does not wait for the pipes' ends: a process that
    /// it left behind may keep them open.
    private func follow(until deadline: Int, stopSignal: Waker, _ report: inout Report) throws(StoreError) -> End? {
        var polled = [childEnd.fd, stopSignal.fd, output.fd, errors.fd].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        while true {
            let left = deadline - monotonicMilliseconds()
            guard left > 0 else { return .tooLong }
            _ = try retrying { poll(&polled, nfds_t(polled.count), Int32(clamping: left)) }
            if polled[1].revents != 0 { return .cancelled }
            // Asked for before the pipes are read: what it wrote is in them when it has ended.
            let hasEnded = polled[0].revents != 0
            // A pipe that has ended would be readable for ever.
            if polled[2].revents != 0, try !readOutput(&report) { polled[2].fd = -1 }
            if polled[3].revents != 0, try !readErrors(&report) { polled[3].fd = -1 }
            if report.outputCount == report.output.count { return .tooMuch }
            if hasEnded { return nil }
        }
    }

    /// Reads what is there; false at the end.
    private func readOutput(_ report: inout Report) throws(StoreError) -> Bool {
        while report.outputCount < report.output.count {
            let room = UnsafeMutableRawBufferPointer(rebasing: report.output[report.outputCount...])
            guard let count = try Self.readNow(output, into: room) else { return true }
            if count == 0 { return false }
            report.outputCount += count
        }
        return true
    }

    /// As `readOutput`, one piece only: a command that complains for ever is not to keep us from the clock.
    private func readErrors(_ report: inout Report) throws(StoreError) -> Bool {
        let room = UnsafeMutableRawBufferPointer(rebasing: report.errors[report.errorCount...])
        guard let count = try Self.readNow(errors, into: room) else { return true }
        report.errorCount = min(report.errorCount + count, Self.errorSize / 2)
        return count != 0
    }

    /// read(2); nil where nothing is there now.
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

    /// Ends the group and reaps the child: while it is not reaped, its number is nobody else's.
    private func killAll() {
        kill(-child, SIGKILL)
        var polled = pollfd(fd: childEnd.fd, events: Int16(POLLIN), revents: 0)
        let isDead = try? retrying { poll(&polled, 1, Int32(Self.patienceWithDead)) } == 1
        if isDead == true {
            _ = ChildProcess.wait(for: child)
            return
        }
        let child = child
        // Without a thread it stays a zombie until this process ends: better than to wait for ever.
        try? BackgroundThread { _ = ChildProcess.wait(for: child) }.detach()
    }
}
