internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The socket between the process that was typed and the daemon it starts: the secret goes one way, the outcome
/// comes back as one line of JSON. One thread at a time.
struct DaemonChannel {
    /// How the daemon's start ended.
    enum Outcome: Equatable {
        case ready
        case failed(CommandFailure)
    }

    private struct OutcomeLine: Codable {
        /// Nil: ready.
        var error: String?
        var code: Int32?
    }

    let descriptor: Int32

    /// Two ends of a new channel, close-on-exec.
    static func makePair() throws(Errno) -> (DaemonChannel, DaemonChannel) {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            throw currentErrno()
        }
        return (DaemonChannel(descriptor: ends[0]), DaemonChannel(descriptor: ends[1]))
    }

    func close() {
        Glibc.close(descriptor)
    }

    /// Its length in four bytes, and the secret.
    func send(secret: SecretBytes) throws(Errno) {
        let length = [UInt8](withUnsafeBytes(of: UInt32(secret.count).littleEndian) { Array($0) })
        try length.withUnsafeBufferPointer { (buffer) throws(Errno) in try write(UnsafeRawBufferPointer(buffer)) }
        try secret.withUnsafeBytes { (bytes) throws(Errno) in try write(bytes) }
    }

    /// Nil where the other side has gone, or sent less than a secret.
    func receiveSecret() -> SecretBytes? {
        var length: UInt32 = 0
        guard withUnsafeMutableBytes(of: &length, { receive($0) }) else { return nil }
        return try? SecretBytes(count: Int(UInt32(littleEndian: length))) { (buffer) throws(CryptoError) in
            guard receive(buffer) else { throw .invalidInput("no secret") }
        }
    }

    /// Fills the buffer; false where the other side has gone before.
    private func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Bool {
        var done = 0
        while done < buffer.count {
            let count = try? retrying { read(descriptor, buffer.baseAddress.map { $0 + done }, buffer.count - done) }
            guard let count, count > 0 else { return false }
            done += count
        }
        return true
    }

    func send(_ outcome: Outcome) throws(Errno) {
        var line = OutcomeLine()
        if case .failed(let failure) = outcome {
            line.error = failure.message
            line.code = failure.code.rawValue
        }
        guard let encoded = try? JSONEncoder().encode(line) else {
            preconditionFailure("internal error: an outcome cannot be encoded")
        }
        let bytes = Array(encoded) + [UInt8(ascii: "\n")]
        try bytes.withUnsafeBufferPointer { (buffer) throws(Errno) in try write(UnsafeRawBufferPointer(buffer)) }
    }

    /// Waits for the outcome; nil where the daemon has gone without a word.
    func receiveOutcome() -> Outcome? {
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 4096)
        while bytes.last != UInt8(ascii: "\n") {
            guard let count = try? retrying({ read(descriptor, &piece, piece.count) }), count > 0 else { return nil }
            bytes += piece[..<count]
        }
        guard let line = try? JSONDecoder().decode(OutcomeLine.self, from: Data(bytes)) else { return nil }
        guard let error = line.error else { return .ready }
        return .failed(CommandFailure(line.code.flatMap(FailureCode.init) ?? .failure, error))
    }

    /// Whether the other side has closed the channel.
    var isAbandoned: Bool {
        var entry = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP | POLLERR) != 0
    }

    private func write(_ bytes: UnsafeRawBufferPointer) throws(Errno) {
        var done = 0
        while done < bytes.count {
            let count = Glibc.send(
                descriptor, bytes.baseAddress.map { $0 + done }, bytes.count - done, Int32(MSG_NOSIGNAL))
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw currentErrno() }
            done += count
        }
    }
}
