internal import CLinux
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The terminal of this process: asks for secrets without echo, and for a yes or no.
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
    private static let lineLimit = 4095
    /// The signals that end or stop the program. The terminal's state is restored first.
    private static let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP]

    private let fd: Int32

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
    static func ask(_ question: String, otherwise: String = sources) throws(CommandFailure) -> WipedBytes {
        let terminal = try TerminalPrompt(otherwise: otherwise)
        while true {
            let answer = try terminal.askOnce(question)
            let arrived = arrivedSignal.exchange(0, ordering: .relaxed)
            guard arrived != 0 else { return answer }
            // The old disposition is back. The signal ends the program, or stops it, and then we ask again.
            raise(arrived)
        }
    }

    private func askOnce(_ question: String) throws(CommandFailure) -> WipedBytes {
        var before = try state()
        var old: [sigaction] = []
        for number in Self.signals {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = storeSignal
            var previous = sigaction()
            // Without SA_RESTART, so that the read ends.
            sigaction(number, &action, &previous)
            old.append(previous)
        }
        // Blocked except while we wait: a signal between the check and the wait would not end the wait.
        var (blocked, mask) = (Signals.set(of: Self.signals), sigset_t())
        pthread_sigmask(SIG_BLOCK, &blocked, &mask)
        // Even if our parent has blocked them: ^C must end the program at the first prompt too.
        for number in Self.signals { sigdelset(&mask, number) }
        var silent = before
        silent.c_lflag &= ~tcflag_t(ECHO)
        tcsetattr(fd, TCSAFLUSH, &silent)
        defer {
            tcsetattr(fd, TCSAFLUSH, &before)
            for (number, var previous) in zip(Self.signals, old) { sigaction(number, &previous, nil) }
            pthread_sigmask(SIG_UNBLOCK, &blocked, nil)
            write(fd, "\n", 1)
        }
        write(fd, question, question.utf8.count)
        return try readLine(mask)
    }

    /// - Throws: if the terminal has hung up (EIO), or is not a terminal.
    private func state() throws(CommandFailure) -> termios {
        var state = termios()
        guard tcgetattr(fd, &state) == 0 else { throw Self.lost(currentErrno()) }
        return state
    }

    private static func lost(_ error: Errno) -> CommandFailure {
        CommandFailure(.failure, "the terminal has hung up: \(error)")
    }

    /// - Parameter mask: the signal mask while it waits.
    private func readLine(_ mask: sigset_t) throws(CommandFailure) -> WipedBytes {
        let line = WipedBytes(capacity: SecretSource.textLimit + 1)
        while !line.isFull, arrivedSignal.load(ordering: .relaxed) == 0 {
            if withUnsafePointer(to: mask, { linux_wait_for_input(fd, $0) }) < 0, errno == EINTR { continue }
            let count: Int
            do throws(StoreError) {
                count = try line.fill { (buffer) throws(StoreError) in
                    try retrying { read(fd, buffer.baseAddress, buffer.count) }
                }
            } catch {
                throw Self.lost(error.errno)
            }
            if line.removeLineEnd() {
                guard line.count < Self.lineLimit else {
                    throw CommandFailure(
                        .wrongSecret,
                        "a terminal takes no more than \(Self.lineLimit - 1) bytes: use a file or a descriptor")
                }
                return line
            }
            if count == 0 {
                // ^D was typed, unless the terminal has hung up.
                _ = try state()
                return line
            }
        }
        guard !line.isFull else {
            throw CommandFailure(.wrongSecret, "over \(SecretSource.textLimit) bytes were typed")
        }
        return line
    }
}

/// The signal that arrived while echo was off, or 0.
private let arrivedSignal = Atomic<Int32>(0)

/// A signal handler: nothing but an atomic store.
private func storeSignal(_ number: Int32) { arrivedSignal.store(number, ordering: .relaxed) }
