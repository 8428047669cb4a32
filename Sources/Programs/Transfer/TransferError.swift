package import LinuxSystem
internal import SystemPackage

/// The reason for which a transfer ended early.
package enum TransferError: Error, Equatable, Sendable {
    case stopped
    /// The destination can take no more. The path is that of the object, below the destination.
    case unusable(path: [UInt8], StoreError)
}

/// The reason for which one object is not transferred. Texts are for people: lower case, no full stop.
enum TransferFailure: Error, Equatable {
    /// A fault of this object alone. The transfer goes on with the rest.
    case entry(String)
    /// The source's object does not verify.
    case damaged(String)
    case stopped
    /// An error of the destination. The next object would meet it too, so the transfer ends.
    case unusable(StoreError)

    static let isTemporary = TransferFailure.entry(
        "not copied: this is the name of an unfinished import or export; rename the file if it is yours")
    static let differs = TransferFailure.entry("something else is there already: --overwrite replaces files")
    static let changed = TransferFailure.entry("it was changed while it was read")
    static let missing = TransferFailure.entry("it is missing at the destination")

    private static let fatal: Set<Errno> = [
        .readOnlyFileSystem, .ioError, .tooManyOpenFiles, .tooManyOpenFilesInSystem,
    ]

    /// - Parameter error: of the source.
    init(reading error: StoreError) {
        switch error {
        case .system(let errno), .refused(let errno): self = .entry("cannot be read: \(errno)")
        case .damaged(let text): self = .damaged(text)
        case .unavailable(_, let text), .crypto(let text): self = .entry(text)
        }
    }

    /// - Parameter error: of the destination.
    init(writing error: StoreError) {
        self =
            switch error {
            case .system(let errno) where errno.isNoSpace || Self.fatal.contains(errno),
                .refused(let errno) where errno.isNoSpace || Self.fatal.contains(errno):
                .unusable(error)
            case .unavailable: .unusable(error)
            case .system(.fileExists): .differs
            default: .entry("cannot be written: \(error.reason)")
            }
    }
}

/// Evaluates `body`, which uses the destination.
func writing<Result>(_ body: @autoclosure () throws(StoreError) -> Result) throws(TransferFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw TransferFailure(writing: error) }
}

func writing<Result>(_ body: () throws(StoreError) -> Result) throws(TransferFailure) -> Result {
    try writing(try body())
}

/// Evaluates `body`, which reads the source.
func reading<Result>(_ body: @autoclosure () throws(StoreError) -> Result) throws(TransferFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw TransferFailure(reading: error) }
}
