internal import LinuxSystem

/// The entry of a conflict copy: the version of a file that a sync client kept beside the file's own entry, under that
/// entry and an addition (FileFormat, Conflict copies).
package struct ConflictCopy: Equatable, Sendable {
    private static let longStart = Array("vaultfs.long".utf8)
    private static let sidecarSuffix = Array(".name".utf8)
    private static let mark = Array(" (conflict ".utf8)
    private static let dot = UInt8(ascii: ".")
    /// Digits of a long entry after `vaultfs.long.`.
    private static let longDigits = 43
    /// Bytes of the longest extension, with its dot.
    private static let longestExtension = 32
    /// Digits that tell shortened names apart.
    private static let telltaleDigits = 8

    /// The entry that the copy is a version of.
    package let twin: [UInt8]
    /// Begins with a byte outside base64url.
    package let addition: [UInt8]

    /// Nil if `entry` is not spelled like a conflict copy. The twin's name may still not authenticate.
    package init?(_ entry: [UInt8]) {
        guard let (twin, addition) = entry.starts(with: Self.longStart) ? Self.long(entry) : Self.short(entry) else {
            return nil
        }
        (self.twin, self.addition) = (Array(twin), Array(addition))
    }

    private static func short(_ entry: [UInt8]) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        let count = Base64.url.digitCount(atStartOf: entry)
        // Nearly every entry ends here.
        guard count > 0, count < entry.count, EntryName.canBeEncrypted(Array(entry[..<count])) else { return nil }
        return (entry[..<count], entry[count...])
    }

    /// Some clients put the addition before the last dot, so before the digits.
    private static func long(_ entry: [UInt8]) -> (ArraySlice<UInt8>, ArraySlice<UInt8>)? {
        if entry.suffix(sidecarSuffix.count).elementsEqual(sidecarSuffix) { return nil }
        let rest = entry[longStart.count...]
        guard rest.first.map({ !Base64.url.isDigit($0) }) ?? false else { return nil }
        let digits = rest.dropFirst().prefix { Base64.url.isDigit($0) }
        if rest.first == dot, digits.count == longDigits {
            let addition = entry[digits.endIndex...]
            // A copy of a sidecar begins so.
            if addition.isEmpty || addition.starts(with: sidecarSuffix) { return nil }
            return (entry[..<digits.endIndex], addition)
        }
        let last = rest.suffix(longDigits)
        let addition = rest.dropLast(longDigits + 1)
        guard !addition.isEmpty, last.allSatisfy(Base64.url.isDigit), rest[addition.endIndex] == dot else { return nil }
        return (ArraySlice(longStart + [dot] + last), addition)
    }

    /// The plaintext name of the copy of a file of this name, of at most 255 bytes.
    package func name(twin name: [UInt8]) -> [UInt8] {
        let (stem, ending) = Self.split(name)
        let end = Self.mark + shownAddition + [UInt8(ascii: ")")] + ending
        if stem.count + end.count <= EntryName.maximumLength { return stem + end }
        let telltale = [UInt8(ascii: "~")] + twin.suffix(Self.longDigits).prefix(Self.telltaleDigits)
        var kept = stem.prefix(max(0, EntryName.maximumLength - telltale.count - end.count))
        // A continuation byte of UTF-8 is 10xxxxxx.
        while kept.endIndex < stem.endIndex, stem[kept.endIndex] & 0xC0 == 0x80, !kept.isEmpty { kept.removeLast() }
        return Array((kept + telltale + end).prefix(EntryName.maximumLength))
    }

    /// The addition as people read it. No two additions look the same.
    private var shownAddition: [UInt8] {
        let (space, parenthesis) = (UInt8(ascii: " "), UInt8(ascii: "("))
        switch (addition[0], addition.dropFirst().first) {
        case (Self.dot, let next?) where Base64.url.isDigit(next): return Array(addition.dropFirst())
        case (space, parenthesis): return Array(addition.dropFirst())
        case (parenthesis, _): return [space] + addition
        default: return addition
        }
    }

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
