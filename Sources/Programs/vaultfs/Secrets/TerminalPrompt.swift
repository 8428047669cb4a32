internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// The terminal of this process: asks for a yes or no, and for secrets without echo.
struct TerminalPrompt: ~Copyable {
    /// The options for use without a terminal, for a passphrase.
    static let passphraseSources = "--passfile (- for standard input), --extpass, --keyring or --credential"
    private static let sourcesOfNew =
        "--passfile (- for standard input), --extpass, --keyring, --credential or --keyfile"
    private static let sources =
        "--passfile (- for standard input), --extpass, --keyring, --credential, --provider or --keyfile"
    /// The number of times that an existing secret is asked for.
    static let maximumTries = 3
    /// The most bytes of a terminal's line. The terminal drops the rest silently (termios(3), canonical mode).
    fileprivate static let lineLimit = 4095

    fileprivate let fd: Int32

    /// - Parameter options: those for use without a terminal.
    /// - Throws: code `usage`.
    init(otherwise options: String) throws(CommandFailure) {
        fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard fd >= 0 else { throw CommandFailure(.usage, "no terminal to ask on: use \(options)") }
    }

    deinit { close(fd) }

    /// Returns true for `y` and `yes`, in either case.
    func confirm(_ question: String) -> Bool {
        write(fd, question, question.utf8.count)
        var answer = [UInt8](repeating: 0, count: 64)
        // read(2) returns a whole line. A signal ends the program.
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

    /// Runs a conversation in which secrets are asked for. The echo is off until its end, also while an answer is
    /// tried, so that nothing typed meanwhile is shown.
    /// - Parameter options: those for use without a terminal.
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

/// A terminal without echo. Only `TerminalPrompt.withoutEcho` makes one.
struct SilentTerminal {
    private let fd: Int32

    fileprivate init(fd: Int32) { self.fd = fd }

    /// Returns the line that is typed, without the LF.
    func ask(_ question: String) throws(CommandFailure) -> WipedBytes {
        // Text typed before the question is no answer to it.
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

    /// - Throws: if the terminal has hung up (EIO), or is not a terminal.
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
                // ^D was typed, unless the terminal has hung up.
                var state = termios()
                guard tcgetattr(fd, &state) == 0 else { throw Self.lost(currentErrno()) }
                return line
            }
        }
        throw CommandFailure(.wrongSecret, "over \(SecretSource.textLimit) bytes were typed")
    }
}
