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

        /// - Parameter sidecarBlob: nil also for a conflict copy, which shares the sidecar of the original.
        package init(entry: Component, sidecarBlob: [UInt8]? = nil) {
            (self.entry, self.sidecarBlob) = (entry, sidecarBlob)
        }

        /// True for a conflict copy. Always false in the result of `encode`.
        package var isConflictCopy: Bool { EntryName.kind(of: entry.bytes) == .conflictCopy }
    }

    /// The kind of a backing directory's entry, by its spelling alone.
    package enum Kind: Equatable, Sendable {
        /// A name in its own entry.
        case name
        /// A name in the sidecar of the entry.
        case longName
        /// The sidecar of a long name.
        case sidecar
        /// A name with an addition of a sync client, decoded without the addition (`ConflictCopy`).
        case conflictCopy
        /// An object left by an interrupted operation. The next mount removes it.
        case temporary
        /// `vaultfs.json`, `vaultfs.dir`, `vaultfs.log`, `vaultfs.lock`, and every other name under `vaultfs.`.
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
    /// The largest blob, in bytes, whose base64url fits an entry of 255 bytes.
    private static let maximumShortBlob = 191
    private static let maximumBlob = tagSize + 256

    /// Returns the entry of `name` in the directory of `keys`, with its sidecar if it needs one. Throws `tooLong` over
    /// 255 bytes and `invalidValue` for names that no file can have.
    package static func encode(_ name: [UInt8], keys: DirectoryKeys) throws(FormatError) -> Encoded {
        try require(
            name.count <= maximumLength, .tooLong, "name of \(name.count) bytes is longer than \(maximumLength)")
        try require(isValid(name), .invalidValue, "not a name that a file can have")
        var padded = name
        padded.append(contentsOf: repeatElement(0, count: paddedSize(name.count) - name.count))
        let blob = try cryptography("name", keys.nameCipher.encrypt(padded, associatedData: associatedData))
        let isShort = blob.count <= maximumShortBlob
        let spelling = isShort ? Base64.url.encode(blob) : try cryptography("name", longEntry(of: blob))
        // Cannot fail: base64url has neither slash nor dot.
        guard let entry = try? Component(spelling) else { throw FormatError(.invalidValue, "name without an entry") }
        return Encoded(entry: entry, sidecarBlob: isShort ? nil : blob)
    }

    /// Returns the name of `entry` in the directory of `keys`, or nil if it does not authenticate there. Only the
    /// spelling from `encode` is valid. `sidecarBlob` is the content of a long name's sidecar, otherwise ignored.
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
        // SIV is deterministic and base64url canonical here, so with minimal padding `encode` returns this very entry.
        let size = name.count
        while name.last == 0 { name.removeLast() }
        return paddedSize(name.count) == size && isValid(name) ? name : nil
    }

    /// Returns false for a spelling that `encode` never returns: the entry is another program's.
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

    /// Returns true for a short name of FAT (`ABCDEF~1.TMP`), which accompanies each long one. Only the short one
    /// remains if a power cut tears the long one, which takes several sectors.
    package static func isShortened(_ entry: [UInt8]) -> Bool {
        let parts = entry.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard let base = parts.first, (3...8).contains(base.count), parts.count <= 2,
            parts.count == 1 || (1...3).contains(parts[1].count), let tilde = base.lastIndex(of: UInt8(ascii: "~"))
        else { return false }
        let digits = base[base.index(after: tilde)...]
        return tilde > base.startIndex && !digits.isEmpty && digits.allSatisfy { (0x30...0x39).contains($0) }
    }

    /// Returns true if a file, link or directory of a vault may have this entry. False for a conflict copy.
    package static func isObject(_ entry: [UInt8]) -> Bool { [.name, .longName].contains(kind(of: entry)) }

    package static func kind(of entry: [UInt8]) -> Kind {
        if ConflictCopy(entry) != nil { return .conflictCopy }
        guard entry.starts(with: reservedPrefix) else { return .name }
        if entry.starts(with: longPrefix) {
            // Unambiguous, because base64url has no dot: a long name cannot end like a sidecar.
            return entry.suffix(sidecarSuffix.count).elementsEqual(sidecarSuffix) ? .sidecar : .longName
        }
        return entry.starts(with: temporaryPrefix) ? .temporary : .reserved
    }

    package static func sidecar(of entry: Component) -> Component { entry + sidecarSuffix }

    /// Returns the entry to which a sidecar belongs, or nil if `sidecar` is none.
    package static func entry(ofSidecar sidecar: Component) -> Component? {
        kind(of: sidecar.bytes) == .sidecar ? try? Component(Array(sidecar.dropLast(sidecarSuffix.count))) : nil
    }

    /// Returns the entry of a temporary object: `vaultfs.tmp.` and `digits`.
    package static func temporary(_ digits: Component) -> Component { temporaryPrefix + digits }

    /// Returns the size, in bytes, up to which every name has an entry of at most `entryLength` bytes. Some names over
    /// 160 bytes fit too, because they get short entries and sidecars.
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
