internal import VaultFormat

/// Whether the keys of `vaultfs.json` are those of the vault: what a repair has to know first, for to the wrong ones
/// everything looks damaged.
package struct VerifierKeys: Sendable, Equatable {
    /// Records of directories and headers of files that opened.
    var opened = 0
    /// Those that were read and did not.
    var unopened = 0
    /// Of these, those of a later key epoch than any that `vaultfs.json` has.
    var later = 0

    /// - Parameter start: the first bytes of what did not open; its epoch is the eighth (FileFormat.md, Epochs).
    mutating func count(unopened start: some Collection<UInt8>, _ epochs: KeyEpochs) {
        unopened += 1
        let isOurs = start.starts(with: DirectoryRecord.magic) || start.starts(with: FileHeader.magic)
        if isOurs, let epoch = start.dropFirst(7).first, epoch > epochs.current { later += 1 }
    }

    /// Why nothing may be repaired by them; nil where something may. One thing alone may be damaged so.
    package var misfit: String? {
        if later > 0 { return "parts of the vault were rekeyed after this vaultfs.json was written" }
        if opened == 0 && unopened > 1 { return "nothing in the vault opens with the keys of this vaultfs.json" }
        return nil
    }
}
