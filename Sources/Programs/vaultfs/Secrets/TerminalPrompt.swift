internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The terminal of this process, which asks for a yes or no, and for secrets without echo.
struct TerminalPrompt: ~Copyable {
    /// The options for a passphrase without a terminal.
    static let passphraseSources = "--passfile (- for standard input), --extpass, --keyring or --credential"
    private static let sourcesOfNew =
        "--passfile (- for standard input), --extpass, --keyring, --credential or --keyfile"
    private static let sources =
        "--passfile (- for standard input), --extpass, --keyring, --credential, --provider, --desktop-keyring or --keyfile"
    /// The number of times the terminal asks for an existing secret.
    static let maximumTries = 3
    /// The most bytes of a terminal's line. The terminal drops the rest silently (termios(3), canonical mode).
    fileprivate static let lineLimit = 4095

    fileprivate let fd: Int32

    /// - Parameter options: the options for use without a terminal.
    /// - Throws: code `usage`.
    init(otherwise options: String) throws(CommandFailure) {
        fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard fd >= 0 else { throw CommandFailure(.usage, "no terminal to ask on: use \(options)") }
    }

    deinit { close(fd) }

    /// True if this process has a terminal.
    static var isThere: Bool {
        do throws(CommandFailure) { _ = try TerminalPrompt(otherwise: sources) } catch { return false }
        return true
    }

    /// Asks, and returns true for `y` and `yes`, in either case.
    func confirm(_ question: String) -> Bool {
        write(fd, question, question.utf8.count)
        var answer = [UInt8](repeating: 0, count: 64)
        // Read once, because read(2) returns a whole line. A signal ends the program.
        let count = read(fd, &answer, answer.count)
        let words = answer.prefix(max(0, count)).split { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: " ") }
        return words.count == 1 && ["y", "yes"].contains(String(decoding: words[0], as: UTF8.self).lowercased())
    }

    /// Asks twice for a new passphrase. `otherwise` lists the options for use without a terminal.
    static func askForNew(otherwise options: String = sourcesOfNew) throws(CommandFailure) -> WipedBytes {
        try withoutEcho(otherwise: options) { (terminal) throws(CommandFailure) in
            let passphrase = try terminal.ask("New passphrase: ")
            guard !passphrase.isEmpty else { throw CommandFailure(.wrongSecret, "the passphrase is empty") }
            let again = try terminal.ask("The same again: ")
            guard passphrase.hasSameBytes(as: again) else {
                throw CommandFailure(.failure, "the two passphrases differ; nothing was done")
            }
            return passphrase
        }
    }

    /// Runs a conversation with questions for secrets. Keeps the echo off until its end, even while an answer is tried.
    /// - Parameter options: the options for use without a terminal.
    /// - Throws: code `usage` without a terminal; the error of `body`.
    static func withoutEcho<Result>(
        otherwise options: String = sources, _ body: (SilentTerminal) throws(CommandFailure) -> Result
    ) throws(CommandFailure) -> Result {
        let terminal = try TerminalPrompt(otherwise: options)
        guard linux_begin_silence(terminal.fd) == 0 else { throw SilentTerminal.lost(currentErrno()) }
        defer { linux_end_silence() }
        return try body(SilentTerminal(fd: terminal.fd))
    }
}

/// A terminal without echo, made only by `TerminalPrompt.withoutEcho`.
struct SilentTerminal {
    private let fd: Int32

    fileprivate init(fd: Int32) { self.fd = fd }

    /// Asks, and returns the typed line without the LF.
    func ask(_ question: String) throws(CommandFailure) -> WipedBytes {
        // Drop earlier input, because it cannot be an answer to this question.
        tcflush(fd, TCIFLUSH)
        defer { write(fd, "\n", 1) }
        return try withCString(Array(question.utf8)) { (question) throws(CommandFailure) in
            linux_set_question(question)
            defer { linux_set_question(nil) }
            return try readLine()
        }
    }

    fileprivate static func lost(_ error: Errno) -> CommandFailure {
        CommandFailure(.failure, "the terminal has hung up: \(error)")
    }

    /// - Throws: code `failure` if the terminal has hung up (EIO), or is not a terminal.
    private func readLine() throws(CommandFailure) -> WipedBytes {
        let line = WipedBytes(capacity: SecretSource.textLimit + 1)
        while !line.isFull {
            let count: Int
            do throws(StoreError) {
                count = try line.fill { (buffer) throws(StoreError) in
                    try retrying { read(fd, buffer.baseAddress, buffer.count) }
                }
            } catch {
                throw Self.lost(error.errno)
            }
            if line.removeLineEnd() {
                guard line.count < TerminalPrompt.lineLimit else {
                    throw CommandFailure(
                        .wrongSecret,
                        "a terminal takes no more than \(TerminalPrompt.lineLimit - 1) bytes: use a file or a descriptor"
                    )
                }
                return line
            }
            if count == 0 {
                // The user has typed ^D, unless the terminal has hung up.
                var state = termios()
                guard tcgetattr(fd, &state) == 0 else { throw Self.lost(currentErrno()) }
                return line
            }
        }
        throw CommandFailure(.wrongSecret, "over \(SecretSource.textLimit) bytes were typed")
    }
}
