package import LinuxSystem
import VaultCrypto

/// Names as the backing directory stores them (FileFormat, Names).
package enum EntryName {
    /// The longest plaintext name, and the longest entry, in bytes.
    package static let maximumLength = 255

    /// The backing form of a name.
    package struct Encoded: Equatable, Sendable {
        /// The backing directory's entry.
        package let entry: Component
        /// The content of the entry's sidecar. Nil if the name fits its entry.
        package let sidecarBlob: [UInt8]?

        /// - Parameter sidecarBlob: nil also for a conflict copy, which uses its twin's sidecar.
        package init(entry: Component, sidecarBlob: [UInt8]? = nil) {
            (self.entry, self.sidecarBlob) = (entry, sidecarBlob)
        }

        /// True for a conflict copy, and false for what `encode` returns.
        package var isConflictCopy: Bool { EntryName.kind(of: entry.bytes) == .conflictCopy }
    }

    /// The kind of a backing directory's entry, by its spelling alone.
    package enum Kind: Equatable, Sendable {
        /// A name to be decoded by itself.
        case name
        /// A name to be decoded with its sidecar.
        case longName
        /// The sidecar of a long name.
        case sidecar
        /// A name with an addition, to be decoded without it (`ConflictCopy`).
        case conflictCopy
        /// Left by an interrupted operation. Removed at mount.
        case temporary
        /// `vaultfs.json`, `vaultfs.dir`, `vaultfs.log`, `vaultfs.lock`, and any other name that starts with
        /// `vaultfs.`.
        case reserved
    }

    private static let reservedPrefix: Component = "vaultfs."
    private static let longPrefix: Component = "vaultfs.long."
    package static let temporaryPrefix: Component = "vaultfs.tmp."
    private static let sidecarSuffix: Component = ".name"
    private static let associatedData: [[UInt8]] = [Array("name".utf8)]
    private static let tagSize = 16
    private static let paddingUnit = 16
    /// Size of a SHA-256 digest, in bytes.
    private static let digestSize = 32
    /// A blob of more bytes than this has more than 255 digits.
    private static let maximumShortBlob = 191
    private static let maximumBlob = tagSize + 256

    /// The entry, and the sidecar if there is one, of `name` in the directory of `keys`.
    /// Throws `tooLong` over 255 bytes and `invalidValue` for names that no file can have.
    package static func encode(_ name: [UInt8], keys: DirectoryKeys) throws(FormatError) -> Encoded {
        try require(
            name.count <= maximumLength, .tooLong, "name of \(name.count) bytes is longer than \(maximumLength)")
        try require(isValid(name), .invalidValue, "not a name that a file can have")
        var padded = name
        padded.append(contentsOf: repeatElement(0, count: paddedSize(name.count) - name.count))
        let blob = try cryptography("name", keys.nameCipher.encrypt(padded, associatedData: associatedData))
        let isShort = blob.count <= maximumShortBlob
        let spelling = isShort ? Base64.url.encode(blob) : try cryptography("name", longEntry(of: blob))
        // base64url has neither slash nor dot.
        guard let entry = try? Component(spelling) else { throw FormatError(.invalidValue, "name without an entry") }
        return Encoded(entry: entry, sidecarBlob: isShort ? nil : blob)
    }

    /// The name of `entry` in the directory of `keys`. Nil if it does not authenticate there: only the one spelling
    /// that `encode` gives a name is accepted. `sidecarBlob` is the content of a long name's sidecar, otherwise
    /// ignored.
    package static func decode(_ entry: [UInt8], sidecarBlob: [UInt8]?, keys: DirectoryKeys) -> [UInt8]? {
        let blob: [UInt8]
        switch kind(of: entry) {
        case .name:
            guard entry.count <= maximumLength, let decoded = Base64.url.decode(entry) else { return nil }
            blob = decoded
        case .longName:
            guard let sidecarBlob, sidecarBlob.count > maximumShortBlob, sidecarBlob.count <= maximumBlob,
                let expected = try? longEntry(of: sidecarBlob), expected == entry
            else { return nil }
            blob = sidecarBlob
        case .sidecar, .conflictCopy, .temporary, .reserved: return nil
        }
        guard blob.count > tagSize, blob.count % paddingUnit == 0,
            var name = try? keys.nameCipher.decrypt(blob, associatedData: associatedData)
        else { return nil }
        // SIV is deterministic and base64url canonical here, so with minimal padding `encode` gives this very entry.
        let size = name.count
        while name.last == 0 { name.removeLast() }
        return paddedSize(name.count) == size && isValid(name) ? name : nil
    }

    /// Returns false for a spelling that `encode` gives no name: the entry is another program's.
    package static func canBeEncrypted(_ entry: [UInt8]) -> Bool {
        switch kind(of: entry) {
        case .name:
            guard entry.count <= maximumLength, let blob = Base64.url.decode(entry) else { return false }
            return blob.count > tagSize && blob.count % paddingUnit == 0
        case .longName:
            let digest = Base64.url.decode(Array(entry.dropFirst(longPrefix.count)))
            return digest?.count == digestSize
        case .sidecar, .conflictCopy, .temporary, .reserved: return false
        }
    }

    /// Returns true for a name as FAT has it beside each long one (`ABCDEF~1.TMP`). It is the only one left if a power cut tears
    /// the long one, which takes several sectors.
    package static func isShortened(_ entry: [UInt8]) -> Bool {
        let parts = entry.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard let base = parts.first, (3...8).contains(base.count), parts.count <= 2,
            parts.count == 1 || (1...3).contains(parts[1].count), let tilde = base.lastIndex(of: UInt8(ascii: "~"))
        else { return false }
        let digits = base[base.index(after: tilde)...]
        return tilde > base.startIndex && !digits.isEmpty && digits.allSatisfy { (0x30...0x39).contains($0) }
    }

    /// Returns true if an entry may be the name of a file, link or directory of a vault. A conflict copy is none.
    package static func isObject(_ entry: [UInt8]) -> Bool { [.name, .longName].contains(kind(of: entry)) }

    /// The kind of `entry`, by its spelling alone.
    package static func kind(of entry: [UInt8]) -> Kind {
        if ConflictCopy(entry) != nil { return .conflictCopy }
        guard entry.starts(with: reservedPrefix) else { return .name }
        if entry.starts(with: longPrefix) {
            // base64url has no dot, so no long name ends like a sidecar.
            return entry.suffix(sidecarSuffix.count).elementsEqual(sidecarSuffix) ? .sidecar : .longName
        }
        return entry.starts(with: temporaryPrefix) ? .temporary : .reserved
    }

    /// The entry of the sidecar of the long name `entry`.
    package static func sidecar(of entry: Component) -> Component { entry + sidecarSuffix }

    /// The entry that a sidecar belongs to. Nil for any other entry than a sidecar.
    package static func entry(ofSidecar sidecar: Component) -> Component? {
        kind(of: sidecar.bytes) == .sidecar ? try? Component(Array(sidecar.dropLast(sidecarSuffix.count))) : nil
    }

    /// The entry of a temporary object: `vaultfs.tmp.` and the digits given.
    package static func temporary(_ digits: Component) -> Component { temporaryPrefix + digits }

    /// The number of bytes up to which every name has an entry of at most `entryLength` bytes. Names over 160 bytes may too,
    /// because they get short entries and sidecars.
    package static func longestName(entryLength: Int) -> Int {
        let longestShort = (maximumShortBlob - tagSize) / paddingUnit * paddingUnit
        func fits(_ size: Int) -> Bool { (4 * (tagSize + size) + 2) / 3 <= entryLength }
        if fits(longestShort) { return maximumLength }
        return stride(from: longestShort, to: 0, by: -paddingUnit).first(where: fits) ?? 0
    }

    private static func isValid(_ name: [UInt8]) -> Bool {
        name.count <= maximumLength && Component.isOne(name)
    }

    private static func paddedSize(_ size: Int) -> Int { (size + paddingUnit - 1) & ~(paddingUnit - 1) }

    private static func longEntry(of blob: [UInt8]) throws(CryptoError) -> [UInt8] {
        Base64.url.encode(try Sha256.digest(blob), after: longPrefix.bytes)
    }
}
