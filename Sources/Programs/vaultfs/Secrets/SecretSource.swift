internal import ArgumentParser
internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// A source of a secret, with the name of its option.
struct SecretSource {
    enum Kind {
        case file(FilePath)
        /// A command for /bin/sh.
        case command(String)
        case descriptor(Int32)
        /// The description of a key in the kernel's keyrings.
        case key(String)
        /// The name of a systemd credential.
        case credential(String)
        /// A file whose bytes are the secret.
        case keyfile(FilePath)
    }

    /// The most bytes of a passphrase or a recovery key.
    static let textLimit = 64 << 10
    /// The most bytes of a keyfile.
    static let keyfileLimit = 8 << 20

    let option: String
    let kind: Kind

    init(_ option: String, _ kind: Kind) { (self.option, self.kind) = (option, kind) }

    /// Reads a text file. `-` is standard input, and `/dev/fd/N` is the descriptor N itself, because the kernel would
    /// open the file again, which fails for a socket and for another user's pipe.
    init(_ option: String, textFile path: FilePath) {
        let name = path.string
        let descriptor = name == "-" ? STDIN_FILENO : name.hasPrefix("/dev/fd/") ? Int32(name.dropFirst(8)) : nil
        // Refuse a negative descriptor, because poll(2) would wait for it for ever.
        let kind = descriptor.flatMap { $0 >= 0 ? Kind.descriptor($0) : nil }
        self.init(option, kind ?? .file(path))
    }

    /// The descriptor to read from. Nil if it has yet to be opened.
    var descriptor: Int32? {
        // The optimizer of Swift 6.3.1 stops at `if case` here ("Found ownership error").
        switch kind {
        case .descriptor(let number): number
        case .file, .command, .key, .credential, .keyfile: nil
        }
    }

    /// - Throws: `ValidationError` for an invalid source, or for several.
    static func check(_ sources: [SecretSource]) throws {
        try checkSingle(sources.map(\.option))
        for source in sources {
            guard case .credential(let name) = source.kind else { continue }
            if name.isEmpty || name.contains("/") || [".", ".."].contains(name) {
                throw ValidationError("\(source.option) '\(name)' is not the name of a credential")
            }
        }
    }

    static func checkSingle(_ options: [String?]) throws {
        let given = options.compactMap { $0 }
        guard given.count <= 1 else {
            throw ValidationError("only one of \(given.joined(separator: ", ")) can be given")
        }
    }

    /// Reads the secret. A text is a passphrase, or a recovery key.
    /// - Parameters:
    ///   - isFirstLine: true if only the first line counts.
    ///   - name: precedes an error of the secret's form.
    func read(isRecoveryKey: Bool = false, isFirstLine: Bool = false, name: String? = nil) throws(CommandFailure)
        -> SlotSecret
    {
        let text: WipedBytes
        switch kind {
        case .file(let path): text = try Self.read(path: path, limit: Self.textLimit)
        case .command(let command):
            text = try Self.run(ProcessArguments.bytes(of: command), option: option, limit: Self.textLimit)
        case .descriptor(let number): text = try read(descriptor: number)
        case .key(let description): text = try Self.read(key: ProcessArguments.bytes(of: description))
        case .credential(let name): text = try Self.read(credential: ProcessArguments.bytes(of: name))
        case .keyfile(let path):
            return try Self.read(path: path, limit: Self.keyfileLimit).secret(.keyfile, name: "keyfile \(path.shown)")
        }
        if !isRecoveryKey { SecretWarning.checkLineBreaks(text, from: option, isFirstLine: isFirstLine) }
        return try text.secret(isRecoveryKey ? .recovery : .passphrase, name: name)
    }

    private func read(descriptor: Int32) throws(CommandFailure) -> WipedBytes {
        let name = descriptor == STDIN_FILENO ? "standard input" : "file descriptor \(descriptor)"
        // Refuse a terminal, because it would show the secret.
        guard isatty(descriptor) == 0 else {
            throw CommandFailure(
                .usage, "\(option): \(name) is a terminal; without \(option) it asks, and does not show the answer")
        }
        return try Self.read(descriptor: descriptor, name: name, limit: Self.textLimit)
    }

    private static func read(path: FilePath, limit: Int) throws(CommandFailure) -> WipedBytes {
        let file = try CommandFailure.wrapping(
            "cannot open", path, try Descriptor(path: path, flags: O_RDONLY | O_NOCTTY))
        SecretWarning.checkMode(of: file, path: path)
        return try read(descriptor: file.fd, name: path.shown, limit: limit)
    }

    /// Reads to the end. Refuses an empty source, and one of over `limit` bytes.
    private static func read(descriptor: Int32, name: String, limit: Int) throws(CommandFailure) -> WipedBytes {
        // Read one byte more than the maximum, to detect a longer source.
        let bytes = WipedBytes(capacity: limit + 1)
        var count = -1
        while !bytes.isFull, count != 0 {
            do throws(StoreError) {
                count = try bytes.fill { (buffer) throws(StoreError) in
                    try retrying {
                        // Wait with poll(2) and leave O_NONBLOCK set (open(2)), because the descriptor may be shared.
                        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
                        poll(&entry, 1, -1)
                        return Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                    }
                }
            } catch {
                throw CommandFailure(.failure, "cannot read \(name): \(error.errno)")
            }
        }
        return try checked(bytes, name: name)
    }

    /// - Parameter bytes: with room for one byte over the limit.
    private static func checked(_ bytes: WipedBytes, name: String) throws(CommandFailure) -> WipedBytes {
        guard !bytes.isFull else {
            let limit = bytes.count - 1
            let kind = [textLimit: "a passphrase or recovery key", keyfileLimit: "a keyfile"][limit] ?? "an answer"
            throw CommandFailure(.wrongSecret, "\(name) has over \(limit) bytes, the limit for \(kind)")
        }
        guard !bytes.isEmpty else { throw CommandFailure(.wrongSecret, "\(name) is empty") }
        return bytes
    }

    /// Reads a key of type user from the kernel's keyrings (keyrings(7)).
    private static func read(key description: [UInt8]) throws(CommandFailure) -> WipedBytes {
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
        return try checked(bytes, name: name)
    }

    /// Reads a credential that systemd gave the service (systemd.exec(5), LoadCredential=).
    private static func read(credential: [UInt8]) throws(CommandFailure) -> WipedBytes {
        guard let directory = getenv("CREDENTIALS_DIRECTORY"), directory.pointee != 0 else {
            throw CommandFailure(
                .failure,
                "no credential '\(FilePath(bytes: credential).shown)': CREDENTIALS_DIRECTORY is not set, as it is in a service "
                    + "with LoadCredential=")
        }
        let path = FilePath(platformString: directory).bytes + [UInt8(ascii: "/")] + credential
        return try read(path: FilePath(bytes: path), limit: textLimit)
    }

    /// Runs a command with /bin/sh and returns its output.
    /// - Parameters:
    ///   - option: the command's option, for errors.
    ///   - input: the command's stdin; nil for ours.
    static func run(
        _ command: [UInt8], option: String, limit: Int, input: Descriptor? = nil, mode: CommandRun.Mode = .interactive
    ) throws(CommandFailure) -> WipedBytes {
        let (text, errors) = (WipedBytes(capacity: limit + 1), WipedBytes(capacity: CommandRun.errorSize))
        let end: CommandRun.End
        do throws(StoreError) {
            end = try CommandRun(command, mode, input: input).finish(output: text, errors: errors)
        } catch {
            throw CommandFailure(.failure, "cannot run the \(option) command: \(error.errno)")
        }
        let reason: String
        switch end {
        case .ended(.exited(0)), .tooMuch: return try checked(text, name: "the output of the \(option) command")
        case .ended(let outcome): reason = "\(outcome)"
        case .tooLong: reason = "was ended: no answer after \(KeyProvider.prefetchTimeout)"
        case .cancelled: reason = "was ended: the vault is unmounted"
        case .leftOpen: reason = "has ended, and something it left running keeps its output open: redirect that"
        }
        throw CommandFailure(.failure, "the \(option) command \(reason)")
    }
}

extension WipedBytes {
    /// Returns the secret of these bytes.
    /// - Parameter name: precedes an error.
    func secret(_ kind: SlotKind, name: String? = nil) throws(CommandFailure) -> SlotSecret {
        do throws(FormatError) {
            return try withBytes { (bytes) throws(FormatError) in
                switch kind {
                case .passphrase: try .passphrase(bytes)
                case .keyfile: try .keyfile(bytes)
                case .recovery: try .recovery(bytes)
                }
            }
        } catch {
            throw CommandFailure(.wrongSecret, (name.map { $0 + ": " } ?? "") + error.reason)
        }
    }
}
