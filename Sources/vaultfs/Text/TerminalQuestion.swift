internal import Glibc

/// A question on the terminal that is answered with yes or no.
struct TerminalQuestion: ~Copyable {
    private let terminal: Int32

    /// - Throws: code `usage` where there is no terminal to ask on.
    /// - Parameter otherwise: the option that answers it.
    init(otherwise option: String) throws(CommandFailure) {
        terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)
        guard terminal >= 0 else { throw CommandFailure(.usage, "no terminal to ask on: use \(option)") }
    }

    deinit {
        close(terminal)
    }

    /// True for `y` or `yes`, in either case; anything else, also the terminal's end, is no.
    func ask(_ question: String) -> Bool {
        write(terminal, question, question.utf8.count)
        var answer = [UInt8](repeating: 0, count: 64)
        // The terminal gives whole lines; what interrupts it ends the program.
        let count = read(terminal, &answer, answer.count)
        let words = answer.prefix(max(0, count)).split { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: " ") }
        return words.count == 1 && ["y", "yes"].contains(String(decoding: words[0], as: UTF8.self).lowercased())
    }
}
