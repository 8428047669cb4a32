/// The members of `vaultfs.json` for a vault that was rekeyed (FileFormat, Epochs).
package struct KeyEpoch: Sendable, Equatable {
    /// The highest number: it is one byte of a header.
    package static let maximum: UInt8 = .max
    /// The size of `previous`: the SIV's tag and the master key.
    static let sealedSize = 48

    /// How often the vault was rekeyed: 1…255.
    package let number: UInt8
    /// The master key of the epoch before, encrypted under the current one. Nil when nothing of that epoch is left.
    package let previous: [UInt8]?

    package var epochs: KeyEpochs { KeyEpochs(current: number, previous: previous == nil ? nil : number - 1) }

    /// The lines in the text of the MAC.
    var canonicalLines: [String] { ["epoch \(number)", "previous \(previous.map(KdfParameters.text) ?? "-")"] }
}

/// Which key epochs the objects of a vault may be of (FileFormat, Epochs).
package struct KeyEpochs: Sendable, Equatable {
    /// The epochs of a vault that was never rekeyed.
    package static let first = KeyEpochs(current: 0, previous: nil)

    /// The epoch of new objects.
    package let current: UInt8
    /// The one before, while a rekey is unfinished.
    package let previous: UInt8?

    package func contains(_ epoch: UInt8) -> Bool { epoch == current || epoch == previous }

    /// Why an epoch that is not contained is none of them.
    package func unknown(_ epoch: UInt8) -> String {
        epoch > current
            ? "it was rekeyed (key epoch \(epoch)) after this vaultfs.json was written: put the newest vaultfs.json there"
            : "a rekey has removed its key (key epoch \(epoch))"
    }
}
