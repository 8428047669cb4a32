internal import FileSystem
package import LinuxSystem
internal import SystemPackage
internal import ViewFormats

/// Why an export ends before it has seen everything.
package enum ExportError: Error, Equatable, Sendable {
    /// It was told to stop.
    case stopped
    /// The source or the destination cannot be used any further: at which path (relative to it), and why.
    case unusable(path: [UInt8], StoreError)
    /// The destination is the source, or in it.
    case insideSource
}

/// Why one file, directory or link is not exported.
enum EntryFailure: Error {
    /// The rest goes on. For people: lower case, no full stop.
    case entry(String)
    case whole(ExportError)

    static let occupied = EntryFailure.entry(
        "something else has its name at the destination: remove that, or choose another destination")

    /// Of the source.
    init(_ error: StoreError) {
        switch error {
        case .system(let errno): self = .entry("cannot be read: \(errno)")
        case .damaged(let text), .crypto(let text): self = .entry(text)
        }
    }

    init(_ error: ViewError) {
        switch error {
        case .malformed(let text), .noKey(let text): self = .entry(text)
        case .store(let error): self.init(error)
        }
    }

    /// Of the destination: what the next file would meet as well ends the export.
    init(writing path: [UInt8], _ error: StoreError) {
        switch error {
        case .system(.noSpace), .system(.diskQuotaExceeded), .system(.readOnlyFileSystem), .system(.ioError):
            self = .whole(.unusable(path: path, error))
        case .system(.fileExists): self = .occupied
        case .system(let errno): self = .entry("cannot be written: \(errno)")
        case .damaged(let text), .crypto(let text): self = .entry(text)
        }
    }
}

/// Runs `body`, a write to the destination.
func writingEntry<Result>(
    _ path: [UInt8], _ body: () throws(StoreError) -> Result
) throws(EntryFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw EntryFailure(writing: path, error) }
}

/// Runs `body`, which reads the source.
func readingView<Result>(_ body: () throws(StoreError) -> Result) throws(EntryFailure) -> Result {
    do throws(StoreError) { return try body() } catch { throw EntryFailure(error) }
}
