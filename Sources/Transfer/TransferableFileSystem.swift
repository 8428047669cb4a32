package import FileSystem
package import LinuxSystem
internal import SystemPackage
package import VaultFileSystem
internal import VaultFormat
internal import VaultStore
package import ViewFileSystem
internal import ViewFormats

/// A file system with the facts that a transfer needs beyond ``FileSystem``: see ``TransferTree``.
package protocol TransferableFileSystem: FileSystem {
    var mayLoseTimes: Bool { get }
    var damageUnit: Int { get }
    var knowsLengths: Bool { get }
    func length(of file: File) -> UInt64
    func authenticLength(of file: File) -> UInt64
    func isSealed(_ file: File) -> Bool
    func forgetCached(_ file: File)
    func setLength(_ length: UInt64, of file: File, workspace: Workspace) throws(StoreError)
    func decryption(of file: File) -> (description: String, sample: UInt64)
}

extension VaultFileSystem: TransferableFileSystem {
    package var mayLoseTimes: Bool { true }
    package var damageUnit: Int { store.layout.chunkSize }
    package var knowsLengths: Bool { true }
    package func length(of handle: FileHandle) -> UInt64 { handle.file.length }
    package func authenticLength(of handle: FileHandle) -> UInt64 { handle.file.authenticLength }

    /// A tail that was added behind the sealed length is not content of the file.
    package func isSealed(_ handle: FileHandle) -> Bool { handle.file.isSealed && !handle.file.hasUnsealedTail }

    package func forgetCached(_ handle: FileHandle) {
        LocalTree<Workspace>().forgetCached(handle.file.reader)
    }

    package func setLength(_ length: UInt64, of handle: FileHandle, workspace: Workspace) throws(StoreError) {
        try handle.file.setLength(length, workspace: workspace)
    }

    package func decryption(of handle: FileHandle) -> (description: String, sample: UInt64) { ("", 0) }
}

extension ViewFileSystem: TransferableFileSystem {
    package var mayLoseTimes: Bool { false }
    package var damageUnit: Int { ViewWorkspace.pageSize }
    package var knowsLengths: Bool { false }
    package func length(of handle: ViewHandle) -> UInt64 { handle.content.length }
    package func authenticLength(of handle: ViewHandle) -> UInt64 { .max }
    package func isSealed(_ handle: ViewHandle) -> Bool { true }
    package func forgetCached(_ handle: ViewHandle) {}

    package func setLength(_ length: UInt64, of handle: ViewHandle, workspace: Workspace) throws(StoreError) {
        throw .system(.readOnlyFileSystem)
    }

    /// The sample is where the second chain begins: another chunk size shows there.
    package func decryption(of handle: ViewHandle) -> (description: String, sample: UInt64) {
        guard case .chained(let file) = handle.content else { return ("text", 0) }
        let count = file.map.count
        // A file may have any number of chains. The number stands for those beyond the first.
        let chains = (0..<min(count, 4096)).map { number in
            let piece = file.map[number]
            return "\(piece.chain.ciphertext) \(piece.plaintext) \(Self.description(of: piece.chain.encryption))"
        }
        let description = "\(count) chains, \(file.map.length) bytes\n" + chains.joined(separator: "\n")
        return (description, count > 1 ? file.map[1].plaintext.lowerBound : 0)
    }

    private static func description(of encryption: CipherChain.Encryption?) -> String {
        guard let encryption else { return "plain" }
        let vector =
            switch encryption.vector {
            case .bytes(let vector): "\(vector.high) \(vector.low)"
            case .inFile(let offset): "at \(offset)"
            }
        return "key \(encryption.key), vector \(vector), \(encryption.padding == .none ? "not padded" : "padded")"
    }
}
