internal import ArgumentParser
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// A source of a passphrase or a recovery key, with the option that names it.
enum SecretSource {
    case file(String, FilePath)
    /// Run with /bin/sh.
    case command(String, String)
    case descriptor(String, Int32)
    /// The description of a key in the kernel's keyrings.
    case key(String, String)
    /// The name of a systemd credential.
    case credential(String, String)

    var option: String {
        switch self {
        case .file(let option, _), .command(let option, _), .descriptor(let option, _), .key(let option, _),
            .credential(let option, _):
            option
        }
    }

    func validate() throws {
        switch self {
        case .descriptor(_, let number) where number < 0:
            throw ValidationError("\(option) \(number) is not a file descriptor")
        case .credential(_, let name) where name.isEmpty || name.contains("/") || [".", ".."].contains(name):
            throw ValidationError("\(option) '\(name)' is not the name of a credential")
        default: break
        }
    }

    func read() throws(CommandFailure) -> WipedBytes {
        let limit = SecretReader.textLimit
        switch self {
        case .file(_, let path): return try SecretReader.read(path: path, limit: limit)
        case .command(_, let command):
            return try SecretReader.run(command: ProcessArguments.bytes(of: command), option: option, limit: limit)
        case .descriptor(_, let number):
            return try SecretReader.read(descriptor: number, name: "file descriptor \(number)", limit: limit)
        case .key(_, let description): return try SecretReader.read(key: ProcessArguments.bytes(of: description))
        case .credential(_, let name): return try SecretReader.read(credential: ProcessArguments.bytes(of: name))
        }
    }
}

/// Reads secrets from files, descriptors, programs and keyrings.
enum SecretReader {
    /// The most bytes of a passphrase or a recovery key.
    static let textLimit = 64 << 10
    /// The most bytes of a keyfile.
    static let keyfileLimit = 8 << 20

    static func read(path: FilePath, limit: Int) throws(CommandFailure) -> WipedBytes {
        let fd = path.withPlatformString { open($0, O_RDONLY | O_CLOEXEC | O_NOCTTY) }
        guard fd >= 0 else { throw CommandFailure(.failure, "cannot open \(path.shown): \(currentErrno())") }
        defer { close(fd) }
        return try read(descriptor: fd, name: path.shown, limit: limit)
    }

    /// Reads to the end. Refuses an empty source and one over `limit` bytes.
    static func read(descriptor: Int32, name: String, limit: Int) throws(CommandFailure) -> WipedBytes {
        try checked(readToEnd(descriptor, name: name, limit: limit), name: name, limit: limit)
    }

    /// Reads at most one byte more than `limit`.
    /// - Parameter waiting: called before each read.
    private static func readToEnd(
        _ descriptor: Int32, name: String, limit: Int, waiting: () throws(CommandFailure) -> Void = {}
    ) throws(CommandFailure) -> WipedBytes {
        let bytes = WipedBytes(capacity: limit + 1)
        while !bytes.isFull {
            try waiting()
            let before = bytes.count
            try bytes.fill { (buffer) throws(CommandFailure) in
                do throws(StoreError) {
                    return try retrying {
                        // A non-blocking descriptor (open(2), O_NONBLOCK) may be shared, so it must stay non-blocking.
                        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
                        poll(&entry, 1, -1)
                        return Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                    }
                } catch {
                    throw CommandFailure(.failure, "cannot read \(name): \(error.errno)")
                }
            }
            if bytes.count == before { break }
        }
        return bytes
    }

    private static func checked(
        _ bytes: WipedBytes, name: String, limit: Int
    ) throws(CommandFailure) -> WipedBytes {
        guard bytes.count <= limit else { throw CommandFailure(.wrongSecret, "\(name) has over \(limit) bytes") }
        guard !bytes.isEmpty else { throw CommandFailure(.wrongSecret, "\(name) is empty") }
        return bytes
    }

    /// The secret in a keyfile.
    static func keyfile(_ file: PathArgument) throws(CommandFailure) -> SlotSecret {
        let contents = try read(path: file.path, limit: keyfileLimit)
        return try slotSecret(contents, name: "keyfile \(file.path.shown)") { (bytes) throws(FormatError) in
            try .keyfile(bytes)
        }
    }

    /// Returns the secret that `make` makes of the bytes, and wipes them. `name` is for a message.
    static func slotSecret(
        _ bytes: WipedBytes, name: String? = nil, _ make: ([UInt8]) throws(FormatError) -> SlotSecret
    ) throws(CommandFailure) -> SlotSecret {
        do throws(FormatError) {
            return try bytes.withBytes(make)
        } catch {
            throw CommandFailure(.wrongSecret, (name.map { $0 + ": " } ?? "") + error.reason)
        }
    }

    /// Reads a key of type user from the kernel's keyrings (keyrings(7)).
    static func read(key description: [UInt8]) throws(CommandFailure) -> WipedBytes {
        let name = "the key '\(FilePath(bytes: description).shown)'"
        let key = withCString(description) { linux_find_key($0) }
        guard key >= 0 else {
            throw CommandFailure(.failure, "cannot find \(name) in the kernel's keyrings: \(currentErrno())")
        }
        let bytes = WipedBytes(capacity: textLimit + 1)
        try bytes.fill { (buffer) throws(CommandFailure) in
            let size = linux_read_key(key, buffer.baseAddress, buffer.count)
            if size < 0 {
                let advice = errno == EACCES ? " (keyctl link @u @s lets this session read its user's keys)" : ""
                throw CommandFailure(.failure, "cannot read \(name): \(currentErrno())\(advice)")
            }
            return min(Int(size), buffer.count)
        }
        return try checked(bytes, name: name, limit: textLimit)
    }

    /// Reads a credential that systemd gave the service (systemd.exec(5), LoadCredential=).
    static func read(credential: [UInt8]) throws(CommandFailure) -> WipedBytes {
        guard let directory = getenv("CREDENTIALS_DIRECTORY"), directory.pointee != 0 else {
            throw CommandFailure(
                .failure,
                "no credential '\(FilePath(bytes: credential).shown)': CREDENTIALS_DIRECTORY is not set, as it is in a service "
                    + "with LoadCredential=")
        }
        let path = UnsafeRawBufferPointer(start: directory, count: strlen(directory))
        return try read(path: FilePath(bytes: Array(path) + [UInt8(ascii: "/")] + credential), limit: textLimit)
    }

    /// Runs a command with /bin/sh and returns its output. The command gets no descriptors but stdio: another one may lead to
    /// another secret. There is no timeout while the command runs.
    /// - Parameters:
    ///   - option: the command's option, for errors.
    ///   - input: the command's stdin. Nil for ours.
    static func run(
        command: [UInt8], option: String, limit: Int, input: Int32? = nil
    ) throws(CommandFailure) -> WipedBytes {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw CommandFailure(.failure, "cannot make a pipe: \(currentErrno())") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let child: pid_t
        do throws(Errno) {
            child = try ChildProcess.spawn(
                path: "/bin/sh", arguments: [Array("sh".utf8), Array("-c".utf8), command],
                descriptors: [(ends[1], STDOUT_FILENO)] + (input.map { [($0, STDIN_FILENO)] } ?? []),
                closesOthers: true)
        } catch {
            for end in ends { close(end) }
            throw CommandFailure(.failure, "cannot run the \(option) command: \(error)")
        }
        close(ends[1])
        let name = "the output of the \(option) command"
        let output = Result { () throws(CommandFailure) in
            var waiter = try OutputWaiter(output: ends[0], child: child, option: option)
            return try readToEnd(ends[0], name: name, limit: limit) { () throws(CommandFailure) in try waiter.wait() }
        }
        // A command that still writes gets SIGPIPE and ends.
        close(ends[0])
        let outcome = ChildProcess.wait(for: child)
        let bytes = try output.get()
        // A failure explains more than empty output.
        guard outcome == .exited(0) || bytes.isFull else {
            throw CommandFailure(.failure, "the \(option) command \(outcome)")
        }
        return try checked(bytes, name: name, limit: limit)
    }
}

/// Waits for a command's output: without a timeout while it runs, and then for a while. A process that the command left in the
/// background may keep the output open. One thread.
private struct OutputWaiter {
    /// The longest time between the command's end and the output's, in milliseconds.
    private static let timeout = 5000

    private let output: Int32
    private let childEnd: Descriptor
    private let option: String
    /// CLOCK_MONOTONIC; nil while the command runs.
    private var deadline: Int?

    /// - Parameters:
    ///   - output: the pipe that the command writes to.
    ///   - option: the command's option, for errors.
    init(output: Int32, child: pid_t, option: String) throws(CommandFailure) {
        let fd = linux_pidfd_open(child)
        guard fd >= 0 else {
            throw CommandFailure(.failure, "cannot wait for the \(option) command: \(currentErrno())")
        }
        (self.output, childEnd, self.option) = (output, Descriptor(owning: fd), option)
    }

    /// Returns when `output` can be read or has ended.
    /// - Throws: after the timeout.
    mutating func wait() throws(CommandFailure) {
        while true {
            let left = deadline.map { max(0, $0 - monotonicMilliseconds()) }
            // poll(2) skips a negative descriptor.
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
            deadline = monotonicMilliseconds() + Self.timeout
        }
    }
}
