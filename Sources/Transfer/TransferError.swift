internal import FileSystem
package import LinuxSystem
internal import SystemPackage

/// Why a transfer ends before it has seen everything.
package enum TransferError: Error, Equatable, Sendable {
    /// It was told to stop.
    case stopped
    /// The destination can take no more: at which path below it, and why.
    case unusable(path: [UInt8], StoreError)
}

/// Why one object is not transferred.
enum TransferFailure: Error {
    /// The rest goes on. For people: lower case, no full stop.
    case entry(String)
    /// What is in the source does not verify.
    case damaged(String)
    case whole(TransferError)

    static let isTemporary = TransferFailure.entry(
        "not copied: so is called what an import or export has not finished; rename it if it is yours")
    static let differs = TransferFailure.entry("something else is there already: --overwrite replaces files")
    static let changed = TransferFailure.entry("it was changed while it was read")

    /// Of the source.
    init(reading error: StoreError) {
        switch error {
        case .system(let errno): self = .entry("cannot be read: \(errno)")
        case .damaged(let text): self = .damaged(text)
        case .crypto(let text): self = .entry(text)
        }
    }

    /// Of the destination: what the next file would meet as well ends the transfer.
    init(writing path: [UInt8], _ error: StoreError) {
        let fatal: [Errno] = [
            .noSpace, .diskQuotaExceeded, .readOnlyFileSystem, .ioError, .tooManyOpenFiles, .tooManyOpenFilesInSystem,
        ]
        switch error {
        case .system(let errno) where fatal.contains(errno): self = .whole(.unusable(path: path, error))
        case .system(.fileExists): self = .differs
        case .system(let errno): self = .entry("cannot be written: \(errno)")
        case .damaged(let text), .crypto(let text): self = .entry("cannot be written: \(text)")
        }
    }
}

/// Runs `body`, which changes the destination.
func writing<Result>(
    _ path: [UInt8], _ body: () throws(StoreError) -> Result
) throws(TransferFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw TransferFailure(writing: path, error) }
}

/// Runs `body`, which reads the source.
func reading<Result>(_ body: () throws(StoreError) -> Result) throws(TransferFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw TransferFailure(reading: error) }
}
