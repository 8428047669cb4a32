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

    /// Capacity of the bytes for stderr. They keep the first half. The second serves to read and drop the rest.
    package static let errorSize = 8192
    /// Timeout for the end of a killed command, in milliseconds. A command that is blocked in the kernel, on a dead server
    /// or on our own mount, can take any time.
    private static let killTimeout = 1000

    private let child: pid_t
    private let childEnd: Descriptor
    private let outputPipe: Descriptor
    private let errorPipe: Descriptor

    /// Starts `/bin/sh -c command` in a session of its own.
    /// - Parameters:
    ///   - environment: nil for that of this process.
    ///   - input: its stdin. Nil for /dev/null.
    /// - Throws: the error of pipe2(2), posix_spawn(3) or pidfd_open(2).
    package init(command: [UInt8], environment: [[UInt8]]? = nil, input: Descriptor? = nil) throws(StoreError) {
        let source =
            if let input { input } else { try Descriptor(at: AT_FDCWD, Array("/dev/null".utf8), flags: O_RDONLY) }
        let (output, errors) = (try Self.pipe(), try Self.pipe())
        do throws(Errno) {
            child = try ChildProcess.spawn(
                path: "/bin/sh", arguments: [[UInt8]("sh".utf8), [UInt8]("-c".utf8), command],
                environment: environment,
                descriptors: [
                    (source.fd, STDIN_FILENO), (output.write.fd, STDOUT_FILENO), (errors.write.fd, STDERR_FILENO),
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
        (outputPipe, errorPipe) = (output.read, errors.read)
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
    /// - Parameters:
    ///   - output: for stdout. The run ends as `tooMuch` when it is full.
    ///   - errors: for stderr, of `errorSize` bytes.
    package func finish(
        within limit: Duration, stopSignal: Waker, output: WipedBytes, errors: WipedBytes
    ) throws(StoreError) -> End {
        let (seconds, attoseconds) = limit.components
        let deadline = monotonicMilliseconds() + Int(seconds) * 1000 + Int(attoseconds / 1_000_000_000_000_000)
        do throws(StoreError) {
            if let reason = try follow(until: deadline, stopSignal, output, errors) {
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
    private func follow(
        until deadline: Int, _ stopSignal: Waker, _ output: WipedBytes, _ errors: WipedBytes
    ) throws(StoreError) -> End? {
        var polled = [childEnd.fd, stopSignal.fd, outputPipe.fd, errorPipe.fd].map {
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
            if polled[2].revents != 0 {
                var count: Int?
                repeat {
                    count = try Self.readNow(outputPipe, into: output, keeping: .max)
                } while count ?? 0 > 0 && !output.isFull
                if count == 0 { polled[2].fd = -1 }
            }
            // Only one piece, so that endless errors cannot delay the deadline.
            if polled[3].revents != 0, try Self.readNow(errorPipe, into: errors, keeping: Self.errorSize / 2) == 0 {
                polled[3].fd = -1
            }
            if output.isFull { return .tooMuch }
            if hasEnded { return nil }
        }
    }

    /// read(2), which does not block. Keeps the bytes up to a total of `limit`. Returns 0 at the end of the pipe, and nil
    /// if there is nothing to read now.
    private static func readNow(
        _ pipe: Descriptor, into bytes: WipedBytes, keeping limit: Int
    ) throws(StoreError) -> Int? {
        var count: Int?
        let room = limit - bytes.count
        do throws(StoreError) {
            try bytes.fill { (buffer) throws(StoreError) in
                let had = try retrying { read(pipe.fd, buffer.baseAddress, buffer.count) }
                count = had
                return min(had, room)
            }
        } catch .system(.resourceTemporarilyUnavailable) {}
        return count
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
