package import Synchronization
internal import VaultFormat

/// The plaintext length of an open file, in bytes. Readers need no lock, but a change needs the file's write lock.
package struct FileLength: ~Copyable, Sendable {
    /// Length in bytes: from the backing file's size or, while the log has an exact length, from the log.
    private let currentLength: Atomic<UInt64>
    private let authenticLength: Atomic<UInt64>
    /// The length by the backing size, if a read-only store ends the file earlier. Otherwise 0.
    let stored = Atomic<UInt64>(0)
    /// True since the file was cut to its sealed length, or its torn tail was cut off. The kernel still has the old
    /// size, because the cut was not a program's request.
    package let isCutBack = Atomic<Bool>(false)
    /// Time of the last check for changes by another machine, in milliseconds of CLOCK_MONOTONIC.
    let lastCheck = Atomic<Int>(0)

    init(_ length: UInt64, _ header: FileHeader) {
        currentLength = Atomic(length)
        authenticLength = Atomic(header.authenticLength(of: length))
    }

    var current: UInt64 { currentLength.load(ordering: .acquiring) }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    var authentic: UInt64 { authenticLength.load(ordering: .acquiring) }

    /// Returns the reason of an error about a file that is shorter or longer than its sealed header says.
    package static func wrong(_ length: UInt64, expected: UInt64) -> String {
        "it should be \(expected) bytes long, \(length) are there"
    }

    func set(_ length: UInt64) { currentLength.store(length, ordering: .releasing) }

    func setAuthentic(_ length: UInt64) { authenticLength.store(length, ordering: .releasing) }

    /// Sets both lengths, the authentic one by a header that was read.
    func set(_ length: UInt64, by header: FileHeader) {
        set(length)
        setAuthentic(header.authenticLength(of: length))
    }
}

extension FileHeader {
    /// The same as `FileLength.authentic`, for a file of `length` bytes of plaintext.
    fileprivate func authenticLength(of length: UInt64) -> UInt64 {
        isSealed && self.length < length ? self.length : .max
    }
}
