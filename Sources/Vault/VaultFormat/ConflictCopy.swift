package import LinuxSystem
internal import VaultCrypto

/// The entry of a conflict copy: a sync client's second version of a file, kept beside the file under the same entry
/// with an addition (FileFormat, Conflict copies).
package struct ConflictCopy: Equatable, Sendable {
    private static let longStart = Array("vaultfs.long".utf8)
    private static let sidecarSuffix = Array(".name".utf8)
    private static let mark = Array(" (conflict ".utf8)
    private static let dot = UInt8(ascii: ".")
    private static let percent = UInt8(ascii: "%")
    /// Digits of a long entry after `vaultfs.long.`.
    private static let longDigits = 43
    /// Bytes of the longest extension, with its dot.
    private static let longestExtension = 32
    /// Digits that distinguish shortened names.
    private static let telltaleDigits = 8

    /// The entry of the original file.
    package let twin: Component
    /// The bytes that the sync client added. The first one is outside base64url.
    package let addition: [UInt8]
    /// True if the addition is before the digits of a long entry. Another copy may have the same addition after them.
    private let isBeforeDigits: Bool

    /// Returns nil if `entry` is not spelled like a conflict copy. Decrypting the twin's name may still fail.
    package init?(_ entry: [UInt8]) {
        guard let (spelling, addition) = entry.starts(with: Self.longStart) ? Self.long(entry) : Self.short(entry),
            let twin = try? Component(Array(spelling))
        else { return nil }
        (self.twin, self.addition) = (twin, Array(addition))
        isBeforeDigits = twin.bytes + addition != entry
    }

    private static func short(_ entry: [UInt8]) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        let count = Base64.url.digitCount(atStartOf: entry)
        // Nearly every entry ends here, because it has no addition.
        guard count > 0, count < entry.count, EntryName.canBeEncrypted(Array(entry[..<count])) else { return nil }
        return (entry[..<count], entry[count...])
    }

    /// Splits a long entry. Some clients put the addition before the last dot, so before the digits.
    private static func long(_ entry: [UInt8]) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        if entry.suffix(sidecarSuffix.count).elementsEqual(sidecarSuffix) { return nil }
        let rest = entry[longStart.count...]
        guard rest.first.map({ !Base64.url.isDigit($0) }) ?? false else { return nil }
        let digits = rest.dropFirst().prefix { Base64.url.isDigit($0) }
        if rest.first == dot, digits.count == longDigits {
            let addition = entry[digits.endIndex...]
            // A conflict copy of a sidecar begins like this.
            if addition.isEmpty || addition.starts(with: sidecarSuffix) { return nil }
            return (entry[..<digits.endIndex], addition)
        }
        let last = rest.suffix(longDigits)
        let addition = rest.dropLast(longDigits + 1)
        guard !addition.isEmpty, last.allSatisfy(Base64.url.isDigit), rest[addition.endIndex] == dot else { return nil }
        return (ArraySlice(longStart + [dot] + last), addition)
    }

    /// Returns the copy's plaintext name, of at most 255 bytes. `name` is the plaintext name of the original.
    package func name(twin name: [UInt8]) -> [UInt8] {
        let (stem, ending) = Self.split(name)
        let end = Self.mark + shownAddition + (isBeforeDigits ? [Self.percent] : []) + [UInt8(ascii: ")")] + ending
        if stem.count + end.count <= EntryName.maximumLength { return stem + end }
        let telltale = [UInt8(ascii: "~")] + twin.suffix(Self.longDigits).prefix(Self.telltaleDigits)
        var kept = stem.prefix(max(0, EntryName.maximumLength - telltale.count - end.count))
        // A continuation byte of UTF-8 is 10xxxxxx.
        while kept.endIndex < stem.endIndex, stem[kept.endIndex] & 0xC0 == 0x80, !kept.isEmpty { kept.removeLast() }
        return Array((kept + telltale + end).prefix(EntryName.maximumLength))
    }

    /// The addition as people read it. Different additions never look the same.
    private var shownAddition: [UInt8] {
        let (space, parenthesis) = (UInt8(ascii: " "), UInt8(ascii: "("))
        let text: [UInt8] =
            switch (addition[0], addition.dropFirst().first) {
            case (Self.dot, let next?) where Base64.url.isDigit(next): Array(addition.dropFirst())
            case (space, parenthesis): Array(addition.dropFirst())
            case (parenthesis, _): [space] + addition
            default: addition
            }
        return shortened(Self.pieces(of: text))
    }

    /// Joins the pieces, and cuts them to the room that an entry has for its addition.
    private func shortened(_ pieces: [[UInt8]]) -> [UInt8] {
        let room = EntryName.maximumLength - twin.count
        if pieces.reduce(0, { $0 + $1.count }) <= room { return Array(pieces.joined()) }
        let digest = (try? Sha256.digest(addition)).map { Base64.url.encode($0) } ?? []
        let telltale = [UInt8(ascii: "~")] + digest.prefix(Self.telltaleDigits)
        var kept: [UInt8] = []
        for piece in pieces {
            if kept.count + piece.count + telltale.count > room { break }
            kept += piece
        }
        return kept + telltale
    }

    /// Splits a text into characters. Escapes hidden characters, invalid UTF-8 and `%` bytewise as `%` and two digits.
    private static func pieces(of text: [UInt8]) -> [[UInt8]] {
        var pieces: [[UInt8]] = []
        var decoder = UTF8.ForwardParser()
        var rest = text.makeIterator()
        var start = 0
        while start < text.count {
            let (length, isShown) =
                switch decoder.parseScalar(from: &rest) {
                case .valid(let encoded): (encoded.count, Self.isShown(UTF8.decode(encoded)))
                case .error(let length): (length, false)
                case .emptyInput: (text.count - start, false)
                }
            let bytes = Array(text[start..<start + length])
            pieces += isShown ? [bytes] : bytes.map { Array("%\(Hexadecimal.encode([$0]).uppercased())".utf8) }
            start += length
        }
        return pieces
    }

    /// Returns false for `%`, control characters, line ends, and other invisible or direction-changing characters.
    private static func isShown(_ scalar: Unicode.Scalar) -> Bool {
        scalar != "%" && !hidden.contains { $0.contains(scalar.value) }
    }

    private static let hidden: [ClosedRange<UInt32>] = [
        0...0x1F, 0x7F...0x9F, 0xAD...0xAD, 0x61C...0x61C, 0x180E...0x180E, 0x200B...0x200F, 0x2028...0x202E,
        0x2060...0x206F, 0xFEFF...0xFEFF, 0xFFF9...0xFFFB, 0xE0000...0xE007F,
    ]

    private static func split(_ name: [UInt8]) -> (ArraySlice<UInt8>, ArraySlice<UInt8>) {
        guard let last = name.lastIndex(of: dot), name[..<last].contains(where: { $0 != dot }),
            name.count - last <= longestExtension
        else { return (name[...], []) }
        return (name[..<last], name[last...])
    }

    /// Returns true if a conflict copy may have this plaintext name.
    package static func canHave(_ name: [UInt8]) -> Bool {
        guard name.count > mark.count, name.contains(mark[1]) else { return false }
        return (0...(name.count - mark.count)).contains { name[$0...].starts(with: mark) }
    }
}
