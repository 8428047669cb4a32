internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

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

    /// Reads to the end. An empty source, or one over `limit` bytes, is refused.
    static func read(descriptor: Int32, name: String, limit: Int) throws(CommandFailure) -> WipedBytes {
        try checked(readToEnd(descriptor, name: name, limit: limit), name: name, limit: limit)
    }

    /// At most one byte more than `limit`.
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
                        // One that does not block (open(2), O_NONBLOCK) is somebody else's too, and stays so.
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

    /// What `make` makes of the bytes, which are wiped. `name` is theirs, for a message.
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
        let place = UnsafeRawBufferPointer(start: directory, count: strlen(directory))
        return try read(path: FilePath(bytes: Array(place) + [UInt8(ascii: "/")] + credential), limit: textLimit)
    }

    /// Runs a command with /bin/sh and returns what it prints. It gets our standard descriptors and no others: one of those
    /// may hold another secret. It may take as long as it likes; what it leaves behind may not.
    /// - Parameters:
    ///   - option: which gave the command, for errors.
    ///   - input: a descriptor that the command reads; nil for ours.
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
            var patience = try OutputPatience(output: ends[0], child: child, option: option)
            return try readToEnd(ends[0], name: name, limit: limit) { () throws(CommandFailure) in try patience.wait() }
        }
        // Who writes on, and would not end, is told that nobody reads.
        close(ends[0])
        let outcome = ChildProcess.wait(for: child)
        let bytes = try output.get()
        // Its failure says more than the empty output that goes with it.
        guard outcome == .exited(0) || bytes.isFull else {
            throw CommandFailure(.failure, "the \(option) command \(outcome)")
        }
        return try checked(bytes, name: name, limit: limit)
    }
}
