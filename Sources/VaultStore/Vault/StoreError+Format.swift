internal import FileSystem
package import LinuxSystem
internal import VaultCrypto
package import VaultFormat

extension StoreError {
    /// Bytes that do not parse or authenticate are damage. A key that was forgotten means that the object is locked.
    package init(_ error: FormatError) {
        self = error.kind == .keyForgotten ? .locked : .damaged(error.reason)
    }

    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofFormat<Result>(
        _ body: @autoclosure () throws(FormatError) -> Result
    ) throws(StoreError) -> Result {
        do throws(FormatError) { return try body() } catch { throw StoreError(error) }
    }

    /// Evaluates `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofCrypto<Result>(
        _ body: @autoclosure () throws(CryptoError) -> Result
    ) throws(StoreError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }

    /// Runs `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofFormat<Result>(_ body: () throws(FormatError) -> Result) throws(StoreError) -> Result {
        do throws(FormatError) { return try body() } catch { throw StoreError(error) }
    }

    /// Runs `body` and throws its error as a `StoreError`.
    @inline(__always)
    static func ofCrypto<Result>(_ body: () throws(CryptoError) -> Result) throws(StoreError) -> Result {
        do throws(CryptoError) { return try body() } catch { throw StoreError(error) }
    }
}
