internal import LinuxSystem

/// A strict reader of the JSON that `vaultfs.json` is (FileFormat, vaultfs.json), and `view.json`.
///
/// Our own, because libraries take what must be refused: duplicate keys (and then disagree on which one counts), `1.0` and
/// `1e0` for an integer, a byte order mark; and what two readers understand differently, a MAC does not protect.
package struct JSONParser {
    /// The largest `vaultfs.json` read; 64 slots take about 20 KiB.
    package static let maximumSize = 1 << 20
    /// Objects and arrays inside each other. The format needs 4; recursion is bounded by it.
    static let maximumDepth = 16
    private static let digits = UInt8(ascii: "0")...UInt8(ascii: "9")

    private let bytes: [UInt8]
    private var position = 0
    private let place: String

    /// The value that `bytes` spell, white space around it allowed. Errors name the byte, counted from 0.
    package static func parse(
        _ bytes: [UInt8], place: String, maximumSize: Int = Self.maximumSize
    ) throws(FormatError) -> StrictJSON {
        guard bytes.count <= maximumSize else {
            throw FormatError(.malformed, "\(place): \(bytes.count) bytes are more than \(maximumSize)")
        }
        guard !bytes.starts(with: [0xEF, 0xBB, 0xBF]) else {
            throw FormatError(.malformed, "\(place): starts with a byte order mark")
        }
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw FormatError(.malformed, "\(place): not valid UTF-8")
        }
        var parser = JSONParser(bytes: bytes, place: place)
        let value = try parser.value(depth: 0)
        parser.skipWhitespace()
        guard parser.position == bytes.count else { throw parser.error("something follows the end") }
        return value
    }

    private init(bytes: [UInt8], place: String) {
        self.bytes = bytes
        self.place = place
    }

    // MARK: values

    private mutating func value(depth: Int) throws(FormatError) -> StrictJSON {
        skipWhitespace()
        switch next {
        case UInt8(ascii: "{"): return .object(try object(depth: depth + 1))
        case UInt8(ascii: "["): return .array(try array(depth: depth + 1))
        case UInt8(ascii: "\""): return .string(try string())
        case let digit? where Self.digits.contains(digit): return .integer(try integer())
        case UInt8(ascii: "n"): return try literal("null", .null)
        case UInt8(ascii: "t"): return try literal("true", .boolean(true))
        case UInt8(ascii: "f"): return try literal("false", .boolean(false))
        case nil: throw error("ends too early")
        default: throw error("no value here")
        }
    }

    private mutating func object(depth: Int) throws(FormatError) -> [[UInt8]: StrictJSON] {
        var members: [[UInt8]: StrictJSON] = [:]
        try open(depth: depth)
        if take(UInt8(ascii: "}")) { return members }
        repeat {
            skipWhitespace()
            guard next == UInt8(ascii: "\"") else { throw error("no key here") }
            let start = position
            let key = try string()
            guard take(UInt8(ascii: ":")) else { throw error("no ':' after a key") }
            let value = try self.value(depth: depth)
            guard members.updateValue(value, forKey: key) == nil else {
                position = start
                throw error("duplicate key '\(shown(key))'")
            }
        } while take(UInt8(ascii: ","))
        guard take(UInt8(ascii: "}")) else { throw error("no ',' or '}' after a member") }
        return members
    }

    private mutating func array(depth: Int) throws(FormatError) -> [StrictJSON] {
        var values: [StrictJSON] = []
        try open(depth: depth)
        if take(UInt8(ascii: "]")) { return values }
        repeat { values.append(try value(depth: depth)) } while take(UInt8(ascii: ","))
        guard take(UInt8(ascii: "]")) else { throw error("no ',' or ']' after an element") }
        return values
    }

    private mutating func open(depth: Int) throws(FormatError) {
        guard depth <= Self.maximumDepth else { throw error("nested deeper than \(Self.maximumDepth)") }
        position += 1
    }

    /// `0|[1-9][0-9]*`, within 64 bits.
    private mutating func integer() throws(FormatError) -> UInt64 {
        let digits = bytes[position...].prefix { Self.digits.contains($0) }
        guard digits.count == 1 || digits.first != UInt8(ascii: "0") else { throw error("a zero leads an integer") }
        var result: UInt64 = 0
        for digit in digits {
            let (product, overflow) = result.multipliedReportingOverflow(by: 10)
            let (sum, carry) = product.addingReportingOverflow(UInt64(digit - UInt8(ascii: "0")))
            guard !overflow, !carry else { throw error("an integer of more than 64 bits") }
            result = sum
        }
        position = digits.endIndex
        if let next, [UInt8(ascii: "."), UInt8(ascii: "e"), UInt8(ascii: "E")].contains(next) {
            throw error("a number that is not written as an integer")
        }
        return result
    }

    private mutating func literal(_ text: StaticString, _ value: StrictJSON) throws(FormatError) -> StrictJSON {
        let expected = text.withUTF8Buffer { Array($0) }
        guard bytes[position...].starts(with: expected) else { throw error("no value here") }
        position += expected.count
        return value
    }

    // MARK: strings

    private mutating func string() throws(FormatError) -> [UInt8] {
        var result: [UInt8] = []
        position += 1
        while let byte = next {
            switch byte {
            case UInt8(ascii: "\""):
                position += 1
                return result
            case UInt8(ascii: "\\"):
                position += 1
                result.append(contentsOf: try escaped())
            case ..<0x20:
                throw error("a control character in a string")
            default:
                position += 1
                result.append(byte)
            }
        }
        throw error("ends inside a string")
    }

    /// What follows a backslash.
    private mutating func escaped() throws(FormatError) -> [UInt8] {
        guard let byte = next else { throw error("ends inside a string") }
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return [byte]
        case UInt8(ascii: "b"): return [0x08]
        case UInt8(ascii: "f"): return [0x0C]
        case UInt8(ascii: "n"): return [0x0A]
        case UInt8(ascii: "r"): return [0x0D]
        case UInt8(ascii: "t"): return [0x09]
        case UInt8(ascii: "u"): return Array(String(try escapedScalar()).utf8)
        default: throw error("an unknown escape")
        }
    }

    /// What follows `\u`: one unit, or a surrogate pair as two escapes.
    private mutating func escapedScalar() throws(FormatError) -> Character {
        let unit = try escapedUnit()
        guard (0xD800..<0xE000).contains(unit) else { return try character(unit) }
        guard unit < 0xDC00, bytes[position...].starts(with: [UInt8(ascii: "\\"), UInt8(ascii: "u")]) else {
            throw error("half a surrogate pair")
        }
        position += 2
        let low = try escapedUnit()
        guard (0xDC00..<0xE000).contains(low) else { throw error("half a surrogate pair") }
        return try character(0x10000 + (unit - 0xD800) << 10 + (low - 0xDC00))
    }

    private mutating func escapedUnit() throws(FormatError) -> UInt32 {
        var unit: UInt32 = 0
        for _ in 0..<4 {
            guard let digit = next, let value = Hexadecimal.value(of: digit) else {
                throw error("an escape without four hexadecimal digits")
            }
            unit = unit << 4 | UInt32(value)
            position += 1
        }
        return unit
    }

    private func character(_ scalar: UInt32) throws(FormatError) -> Character {
        guard let scalar = UnicodeScalar(scalar) else { throw error("half a surrogate pair") }
        return Character(scalar)
    }

    // MARK: bytes

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func skipWhitespace() {
        while let next, next == 0x20 || next == 0x0A || next == 0x09 || next == 0x0D { position += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
        skipWhitespace()
        guard next == byte else { return false }
        position += 1
        return true
    }

    private func error(_ what: String) -> FormatError {
        FormatError(.malformed, "\(place): byte \(position): \(what)")
    }
}
