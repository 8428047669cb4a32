internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// The socket between a mount command and the daemon it starts. The command sends an order and a secret, and the daemon
/// answers with the outcome. Each message is its length in four bytes, and its bytes. One thread at a time.
struct DaemonChannel {
    /// The mount that a daemon makes.
    struct Order: Codable {
        var subject: MountSubject
        var request: MountRequest
    }

    /// The end of a daemon's start.
    struct Outcome: Codable {
        /// Nil if the mount is ready.
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

    func send(_ secret: SecretBytes) throws(Errno) {
        try secret.withUnsafeBytes { (bytes) throws(Errno) in try send(bytes) }
    }

    func send(_ message: some Encodable) throws(Errno) {
        guard let encoded = try? JSONEncoder().encode(message) else {
            preconditionFailure("internal error: a message to or from a daemon cannot be encoded")
        }
        try Array(encoded).withUnsafeBufferPointer { (bytes) throws(Errno) in try send(UnsafeRawBufferPointer(bytes)) }
    }

    private func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) {
        let length = [UInt8](withUnsafeBytes(of: UInt32(bytes.count).littleEndian) { Array($0) })
        try length.withUnsafeBufferPointer { (length) throws(Errno) in try write(UnsafeRawBufferPointer(length)) }
        try write(bytes)
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

    /// Waits for a message. Nil if the other side has hung up.
    /// - Throws: the decoder's errors, such as that of a lock file whose directory has changed.
    func receive<Message: Decodable>(_ type: Message.Type) throws -> Message? {
        guard let bytes = receiveSecret() else { return nil }
        return try JSONDecoder().decode(type, from: bytes.withUnsafeBytes { Data($0) })
    }

    /// The same, in memory for secrets.
    func receiveSecret() -> SecretBytes? {
        var length: UInt32 = 0
        guard withUnsafeMutableBytes(of: &length, { receive($0) }) else { return nil }
        return try? SecretBytes(count: Int(UInt32(littleEndian: length))) { (buffer) throws(CryptoError) in
            guard receive(buffer) else { throw .invalidInput("no secret") }
        }
    }

    private func receive(_ buffer: UnsafeMutableRawBufferPointer) -> Bool {
        var done = 0
        while done < buffer.count {
            let count = read(descriptor, buffer.baseAddress.map { $0 + done }, buffer.count - done)
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { return false }
            done += count
        }
        return true
    }

    /// True if the other side has closed the channel.
    var isAbandoned: Bool {
        var entry = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&entry, 1, 0) > 0 && entry.revents & Int16(POLLHUP | POLLERR) != 0
    }
}
