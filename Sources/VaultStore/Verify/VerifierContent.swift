internal import FileSystem
internal import LinuxSystem
internal import VaultFormat

/// A file whose chunks are being checked.
struct VerifierContent {
    /// Chunks side by side that do not verify: one finding.
    struct DamagedRun {
        var chunks: Range<UInt64>
        var reason: String
    }

    let object: VerifierObject
    let descriptor: Descriptor
    let header: FileHeader
    let keys: FileKeys
    /// As it is once the journal's records have taken their places.
    var backingSize: UInt64
    /// The chunks whose record is in a slot of the journal, and which slot.
    var journaled: [UInt64: Int] = [:]
    var run: DamagedRun?
    /// Unsealed, and its last record neither verifies nor can be cut off.
    var endsUnproven = false

    init(object: VerifierObject, descriptor: Descriptor, header: FileHeader, keys: FileKeys, backingSize: UInt64) {
        self.object = object
        self.descriptor = descriptor
        self.header = header
        self.keys = keys
        self.backingSize = backingSize
    }
}
