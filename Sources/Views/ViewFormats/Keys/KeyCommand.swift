internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// `--key-command`: a shell command that prints a key. The key's URI or ID, or the file's path, is in its environment.
///
/// It runs in a session of its own, without our open files, and is killed at the time limit. Any thread, several at a
/// time.
package final class KeyCommand: Sendable {
    package enum Subject: Sendable {
        /// `VAULTFS_KEY_URI`, as in the playlist.
        case uri([UInt8])
        /// `VAULTFS_KEY_PATH`, relative to the source.
        case path([UInt8])
        /// `VAULTFS_KEY_ID`, in 32 hexadecimal digits, and `VAULTFS_KEY_URI` if a playlist has one.
        case content(KeyID, uri: [UInt8]?)
    }

    private struct Cancellation {
        var isCancelled = false
        /// Woken once, to end the running commands.
        var signal: Waker?
    }

    /// Limits for the log of a failed command's stderr.
    private static let loggedLines = 20
    private static let loggedLineSize = 200

    private let command: [UInt8]
    private let limit: Duration
    private let log: @Sendable (String) -> Void
    private let cancellation = Mutex(Cancellation())

    /// - Parameters:
    ///   - command: for `/bin/sh -c`, without NUL.
    ///   - log: receives the stderr of a failed command, line by line. The stderr of a successful command is dropped,
    ///     because it can contain the key, with `set -x`.
    package init(_ command: [UInt8], limit: Duration = .seconds(30), log: @escaping @Sendable (String) -> Void) {
        self.command = command
        self.limit = limit
        self.log = log
    }

    /// Runs the command, and returns the printed key.
    /// - Throws: `noKey` if it fails, takes too long, prints too much or no key, or is cancelled.
    package func key(for subject: Subject, cipher: ViewCipher?) throws(ViewError) -> KeyMaterial {
        // Read one byte more than the maximum, to detect more output.
        let output = WipedBytes(capacity: KeyFile.maximumSize + 1)
        let errors = WipedBytes(capacity: CommandRun.errorSize)
        var end = CommandRun.End.cancelled
        do throws(StoreError) {
            if let signal = try stopSignal() {
                let mode = CommandRun.Mode.background(limit: limit, stopSignal: signal)
                let run = try CommandRun(command, mode, environment: environment(for: subject))
                end = try run.finish(output: output, errors: errors)
            }
        } catch {
            throw .noKey("cannot run the key command: \(error.errno)")
        }
        if let failure = failure(end) {
            errors.withBytes { errors in
                for line in errors.split(separator: UInt8(ascii: "\n")).prefix(Self.loggedLines) {
                    log("key command: \(shown(line, limit: Self.loggedLineSize))")
                }
            }
            throw .noKey(failure)
        }
        return try output.withBytes { (output) throws(ViewError) in
            try KeyFile.parse(output, cipher: cipher, name: "the output of the key command")
        }
    }

    /// Ends running commands without waiting for them, and refuses new ones.
    package func cancelAll() {
        let signal = cancellation.withLock { state in
            state.isCancelled = true
            return state.signal.take()
        }
        signal?.wake()
    }

    /// Allows new commands again.
    package func resume() { cancellation.withLock { $0.isCancelled = false } }

    /// Returns the signal to stop commands, or nil if they are refused.
    private func stopSignal() throws(StoreError) -> Waker? {
        try cancellation.withLock { (state) throws(StoreError) in
            if state.isCancelled { return nil }
            if state.signal == nil { state.signal = try Waker() }
            return state.signal
        }
    }

    /// Returns the environment of this process with the subject's variables.
    private func environment(for subject: Subject) throws(StoreError) -> [[UInt8]] {
        let names = ["VAULTFS_KEY_URI=", "VAULTFS_KEY_PATH=", "VAULTFS_KEY_ID="].map { [UInt8]($0.utf8) }
        var variables: [[UInt8]] = []
        var next = environ
        while let variable = next.pointee {
            let bytes = [UInt8](UnsafeRawBufferPointer(start: variable, count: strlen(variable)))
            if !names.contains(where: bytes.starts) { variables.append(bytes) }
            next += 1
        }
        let own: [[UInt8]] =
            switch subject {
            case .uri(let uri): [names[0] + uri]
            case .path(let path): [names[1] + path]
            case .content(let id, let uri): [names[2] + Array(id.text.utf8)] + (uri.map { [names[0] + $0] } ?? [])
            }
        guard !own.contains(where: { $0.contains(0) }) else { throw .system(.invalidArgument) }
        return variables + own
    }

    private func failure(_ end: CommandRun.End) -> String? {
        switch end {
        case .ended(.exited(0)): nil
        case .ended(let outcome): "the key command \(outcome)"
        case .tooLong: "the key command was killed: not done after \(limit)"
        case .tooMuch: "the key command was killed: it prints more than \(KeyFile.maximumSize) bytes"
        case .cancelled, .leftOpen: "the key command was cancelled: the view is locked or unmounted"
        }
    }
}
