/// Which key epochs the objects of a vault may be of (FileFormat, Epochs).
package struct KeyEpochs: Sendable, Equatable {
    /// Of a vault that was never rekeyed.
    package static let first = KeyEpochs(current: 0, previous: nil)

    /// The epoch of new objects.
    package let current: UInt8
    /// The one before, while a rekey is unfinished.
    package let previous: UInt8?

    package func contains(_ epoch: UInt8) -> Bool { epoch == current || epoch == previous }

    /// Why an epoch that is not contained is none of them.
    package func unknown(_ epoch: UInt8) -> String {
        epoch > current
            ? "its key epoch \(epoch) is later than that of vaultfs.json: put the newest vaultfs.json there"
            : "its key epoch \(epoch) is gone since a rekey"
    }
}
