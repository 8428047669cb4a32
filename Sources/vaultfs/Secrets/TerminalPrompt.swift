internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultStore

/// Asks for a secret on the terminal, without echo.
enum TerminalPrompt {
    private static let otherSources =
        "--passfile, --extpass, --passphrase-fd, --keyring, --credential, --provider or --keyfile"
    private static let sourcesOfNew = "--passfile, --extpass, --passphrase-fd, --keyring, --credential or --keyfile"
    /// The most bytes of a terminal's line. The terminal drops the rest silently (termios(3), canonical mode).
    private static let lineLimit = 4095
    /// The signals that end or stop the program. The terminal's state is restored first.
    private static let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]

    /// Asks twice for a new passphrase. `otherwise` lists the options for use without a terminal.
    static func askForNew(otherwise: String = sourcesOfNew) throws(CommandFailure) -> WipedBytes {
        let passphrase = try ask("New passphrase: ", otherwise: otherwise)
        guard !passphrase.isEmpty else { throw CommandFailure(.wrongSecret, "the passphrase is empty") }
        let again = try ask("The same again: ", otherwise: otherwise)
        guard passphrase.hasSameBytes(as: again) else {
            throw CommandFailure(.failure, "the two passphrases differ; nothing was done")
        }
        return passphrase
    }

    /// Returns the line that is typed, without the LF. `otherwise` lists the options for use without a terminal.
    static func ask(_ question: String, otherwise: String = otherSources) throws(CommandFailure) -> WipedBytes {
        let terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else {
            throw CommandFailure(.failure, "no terminal to ask on: use \(otherwise)")
        }
        defer { close(terminal) }
        while true {
            let answer = try askOnce(question, terminal: terminal)
            let arrived = arrivedSignal.exchange(0, ordering: .relaxed)
            guard arrived != 0 else { return answer }
            // The old disposition is back. The signal ends the program, or stops it, and then we ask again.
            raise(arrived)
        }
    }

    private static func askOnce(_ question: String, terminal: Int32) throws(CommandFailure) -> WipedBytes {
        var before = try state(of: terminal)
        var old: [sigaction] = []
        for number in signals {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = noteSignal
            var previous = sigaction()
            // Without SA_RESTART, so that the read ends.
            sigaction(number, &action, &previous)
            old.append(previous)
        }
        // Blocked except while we wait: a signal between the check and the wait would not end the wait.
        var mask = Self.mask(SIG_BLOCK, of: signals)
        // Even if our parent has blocked them: ^C must end the program at the first prompt too.
        for number in signals { sigdelset(&mask, number) }
        var silent = before
        silent.c_lflag &= ~tcflag_t(ECHO)
        tcsetattr(terminal, TCSAFLUSH, &silent)
        defer {
            tcsetattr(terminal, TCSAFLUSH, &before)
            for (number, var previous) in zip(signals, old) { sigaction(number, &previous, nil) }
            _ = Self.mask(SIG_UNBLOCK, of: signals)
            write(terminal, "\n", 1)
        }
        write(terminal, question, question.utf8.count)
        return try readLine(terminal, mask: mask)
    }

    /// - Throws: if the terminal has hung up (EIO), or is not a terminal.
    private static func state(of terminal: Int32) throws(CommandFailure) -> termios {
        var state = termios()
        guard tcgetattr(terminal, &state) == 0 else {
            throw lost(currentErrno())
        }
        return state
    }

    private static func lost(_ error: Errno) -> CommandFailure {
        CommandFailure(.failure, "the terminal has hung up: \(error)")
    }

    /// pthread_sigmask(3); returns the mask of before.
    private static func mask(_ operation: Int32, of numbers: [Int32]) -> sigset_t {
        var (set, before) = (sigset_t(), sigset_t())
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        pthread_sigmask(operation, &set, &before)
        return before
    }

    /// - Parameter mask: the signal mask while it waits.
    private static func readLine(_ terminal: Int32, mask: sigset_t) throws(CommandFailure) -> WipedBytes {
        let line = WipedBytes(capacity: SecretReader.textLimit + 1)
        while !line.isFull, arrivedSignal.load(ordering: .relaxed) == 0 {
            let before = line.count
            var failure: Errno?
            if withUnsafePointer(to: mask, { linux_wait_for_input(terminal, $0) }) < 0, errno == EINTR { continue }
            line.fill { buffer in
                let count = read(terminal, buffer.baseAddress, buffer.count)
                if count < 0 { failure = currentErrno() }
                return max(0, count)
            }
            if failure == .interrupted { continue }
            if let failure { throw lost(failure) }
            if line.endsLine {
                line.removeLast()
                guard line.count < lineLimit else {
                    throw CommandFailure(
                        .wrongSecret, "a terminal takes no more than \(lineLimit - 1) bytes: use a file or a descriptor"
                    )
                }
                return line
            }
            if line.count == before {
                // ^D was typed, unless the terminal has hung up.
                _ = try state(of: terminal)
                return line
            }
        }
        guard !line.isFull else {
            throw CommandFailure(.wrongSecret, "over \(SecretReader.textLimit) bytes were typed")
        }
        return line
    }
}

/// The signal that arrived while echo was off, or 0.
private let arrivedSignal = Atomic<Int32>(0)

/// A signal handler: nothing but an atomic store.
private func noteSignal(_ number: Int32) {
    arrivedSignal.store(number, ordering: .relaxed)
}

/// A question with the answers yes and no, on the terminal.
struct TerminalQuestion: ~Copyable {
    private let terminal: Int32

    /// - Parameter otherwise: the option that answers the question.
    /// - Throws: code `usage` if there is no terminal.
    init(otherwise option: String) throws(CommandFailure) {
        terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { throw CommandFailure(.usage, "no terminal to ask on: use \(option)") }
    }

    deinit {
        close(terminal)
    }

    /// Returns true for `y` and `yes`, in either case.
    func ask(_ question: String) -> Bool {
        write(terminal, question, question.utf8.count)
        var answer = [UInt8](repeating: 0, count: 64)
        // read(2) returns a whole line. A signal ends the program.
        let count = read(terminal, &answer, answer.count)
        let words = answer.prefix(max(0, count)).split { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: " ") }
        return words.count == 1 && ["y", "yes"].contains(String(decoding: words[0], as: UTF8.self).lowercased())
    }
}
