internal import CFuse
internal import Glibc
internal import Synchronization

/// The messages of libfuse and fusermount3 during a mount, for our own one-line error. Any thread. One mount at a time.
enum LibraryMessages {
    /// All messages so far. libfuse can log one line in several pieces.
    private static let messages = Mutex<[UInt8]>([])

    /// Captures libfuse's messages until `restore`.
    static func capture() {
        messages.withLock { $0 = [] }
        fuse_set_log_func { _, format, arguments in
            guard let format, let arguments else { return }
            var text = [CChar](repeating: 0, count: 512)
            vsnprintf(&text, text.count, format, arguments)
            LibraryMessages.add(text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) })
        }
    }

    static func restore() { fuse_set_log_func(nil) }

    /// Runs a call that may start fusermount3, and captures its standard error.
    static func capturingHelper<Result>(_ body: () -> Result) -> Result {
        var ends: [Int32] = [-1, -1]
        let saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)
        guard saved >= 0, pipe(&ends) == 0 else { return body() }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
        dup2(ends[1], STDERR_FILENO)
        let result = body()
        dup2(saved, STDERR_FILENO)
        close(saved)
        close(ends[1])
        var text = [UInt8](repeating: 0, count: 4096)
        let count = read(ends[0], &text, text.count)
        close(ends[0])
        if count > 0 { add(text[..<count]) }
        return result
    }

    private static func add(_ text: some Collection<UInt8>) { messages.withLock { $0 += text } }

    static var summary: String { last ?? "no reason given" }

    /// The last line, without the program's name. Nil without messages.
    static var last: String? {
        let lines = messages.withLock { $0 }.split(separator: UInt8(ascii: "\n"))
        guard let line = lines.last.map({ String(decoding: $0, as: UTF8.self) }) else { return nil }
        for name in ["fuse: ", "fusermount3: "] where line.hasPrefix(name) { return String(line.dropFirst(name.count)) }
        return line
    }
}
