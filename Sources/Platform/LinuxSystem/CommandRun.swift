internal import CLinux
internal import Glibc
internal import SystemPackage

/// One run of a shell command, with its output. One thread.
package struct CommandRun {
    package enum Mode {
        /// In this process's session, with its stderr, and its stdin if there is no other input, so the command may ask
        /// the user. Its output includes that of processes left behind by the command.
        case interactive
        /// In a session of its own. Its process group is killed at the limit, or when the signal comes.
        case background(limit: Duration, stopSignal: Waker)
    }

    package enum End: Equatable {
        case ended(ChildProcess.Outcome)
        case tooLong, tooMuch, cancelled
        /// A process left behind by an interactive command keeps its output open.
        case leftOpen
    }

    /// The capacity for stderr, in bytes. The first half is kept. The second serves to read and drop the rest.
    package static let errorSize = 8192
    /// The timeout for the end of a killed command, in milliseconds. A command blocked in the kernel, on a dead server
    /// or on our own mount, can take any time.
    private static let killTimeout = 1000
    /// The longest time between the end of an interactive command and the end of its output.
    private static let leftOpenTimeout = Duration.seconds(5)

    private let mode: Mode
    private let child: pid_t
    private let childEnd, outputPipe: Descriptor
    /// Nil for an interactive command, whose stderr is ours.
    private let errorPipe: Descriptor?

    /// Starts `/bin/sh -c command`, which gets only stdio as descriptors.
    /// - Parameters:
    ///   - environment: nil for that of this process.
    ///   - input: the command's stdin.
    /// - Throws: the error of pipe2(2), posix_spawn(3) or pidfd_open(2).
    package init(
        _ command: [UInt8], _ mode: Mode, environment: [[UInt8]]? = nil, input: Descriptor? = nil
    ) throws(StoreError) {
        let output = try Self.pipe()
        var (source, errors) = (input, (read: Descriptor?.none, write: Descriptor?.none))
        var isSessionLeader = false
        if case .background = mode {
            if input == nil { source = try Descriptor(path: "/dev/null", flags: O_RDONLY) }
            errors = try Self.pipe()
            isSessionLeader = true
        }
        let descriptors = [
            (source?.fd, STDIN_FILENO), (output.write.fd, STDOUT_FILENO), (errors.write?.fd, STDERR_FILENO),
        ]
        let child = try ChildProcess.spawn(
            path: "/bin/sh", arguments: [[UInt8]("sh".utf8), [UInt8]("-c".utf8), command],
            environment: environment,
            descriptors: descriptors.compactMap { own, target in own.map { ($0, target) } },
            isSessionLeader: isSessionLeader)
        do throws(StoreError) { childEnd = Descriptor(owning: try retrying { linux_pidfd_open(child) }) } catch {
            kill(isSessionLeader ? -child : child, SIGKILL)
            _ = ChildProcess.wait(for: child)
            throw error
        }
        (self.mode, self.child) = (mode, child)
        (outputPipe, errorPipe) = (output.read, errors.read)
    }

    /// Makes a pipe with both ends close-on-exec. Reads do not block.
    private static func pipe() throws(StoreError) -> (read: Descriptor, write: Descriptor) {
        var ends: [Int32] = [-1, -1]
        try retrying { linux_pipe(&ends) }
        let (read, write) = (Descriptor(owning: ends[0]), Descriptor(owning: ends[1]))
        try retrying { fcntl(read.fd, F_SETFL, O_NONBLOCK) }
        return (read, write)
    }

    /// Reads the output until the command ends, or kills it, also after too much output. On return the child is reaped,
    /// or will be when the kernel releases it.
    /// - Parameters:
    ///   - output: receives stdout. The run ends as `tooMuch` when it is full.
    ///   - errors: receives the stderr of a command in the background, of `errorSize` bytes.
    /// - Throws: `.system` with errno, after the command was killed.
    package func finish(output: WipedBytes, errors: WipedBytes) throws(StoreError) -> End {
        do throws(StoreError) {
            if let reason = try follow(output, errors) {
                killAll()
                return reason
            }
        } catch {
            killAll()
            throw error
        }
        return .ended(ChildProcess.wait(for: child))
    }

    /// Returns nil when the child has ended and its output is read. For a command in the background, does not wait for
    /// the end of the pipes, because a process left behind by the child can keep them open.
    private func follow(_ output: WipedBytes, _ errors: WipedBytes) throws(StoreError) -> End? {
        var deadline: ContinuousClock.Instant?
        var stop: Int32 = -1
        if case .background(let limit, let stopSignal) = mode {
            deadline = .now + limit
            stop = stopSignal.fd
        }
        // poll(2) skips a negative descriptor.
        var polled = [childEnd.fd, stop, outputPipe.fd, errorPipe?.fd ?? -1].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        while true {
            let left = deadline.map { $0 - .now }
            if let left, left <= .zero { return stop < 0 ? .leftOpen : .tooLong }
            _ = try retrying { poll(&polled, nfds_t(polled.count), left?.pollTimeout ?? -1) }
            if polled[1].revents != 0 { return .cancelled }
            // Check this before the pipes are read, because all output of an ended child is already in them.
            let hasEnded = polled[0].revents != 0
            // Remove an ended pipe, because it would stay readable.
            if polled[2].revents != 0, try hasOutputEnded(output) { polled[2].fd = -1 }
            if polled[3].revents != 0, try haveErrorsEnded(errors) { polled[3].fd = -1 }
            if output.isFull { return .tooMuch }
            if hasEnded, stop >= 0 { return nil }
            if hasEnded {
                polled[0].fd = -1
                deadline = .now + Self.leftOpenTimeout
            }
            if polled[0].fd < 0, polled[2].fd < 0 { return nil }
        }
    }

    /// Reads all present output. Returns true at its end.
    private func hasOutputEnded(_ output: WipedBytes) throws(StoreError) -> Bool {
        var count: Int?
        repeat {
            count = try Self.readNow(outputPipe, into: output, keeping: .max)
        } while count ?? 0 > 0 && !output.isFull
        return count == 0
    }

    /// Reads only one piece, so that endless errors cannot delay the deadline. Returns true at their end.
    private func haveErrorsEnded(_ errors: WipedBytes) throws(StoreError) -> Bool {
        guard let errorPipe else { return true }
        return try Self.readNow(errorPipe, into: errors, keeping: Self.errorSize / 2) == 0
    }

    /// Reads without blocking (read(2)). Keeps the bytes up to a total of `limit`. Returns 0 at the end of the pipe,
    /// and nil if there is nothing to read now.
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

    /// Kills the child, or its group, and reaps it. Other processes cannot get its number before it is reaped.
    private func killAll() {
        kill(errorPipe == nil ? child : -child, SIGKILL)
        var polled = pollfd(fd: childEnd.fd, events: Int16(POLLIN), revents: 0)
        let isDead = try? retrying { poll(&polled, 1, Int32(Self.killTimeout)) } == 1
        if isDead == true {
            _ = ChildProcess.wait(for: child)
            return
        }
        let child = child
        // If no thread can be started, the child stays a zombie until this process ends. Blocking would be worse.
        try? BackgroundThread { _ = ChildProcess.wait(for: child) }.detach()
    }
}
