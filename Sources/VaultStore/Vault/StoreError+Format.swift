package import LinuxSystem
package import VaultFormat

extension StoreError {
    /// What does not parse or authenticate is damage; a key that is not here is a lock.
    package init(_ error: FormatError) {
        self = error.kind == .keyForgotten ? .locked : .damaged(error.reason)
    }
}
