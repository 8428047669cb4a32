internal import LinuxSystem

/// A value of strict JSON. Strings are UTF-8 bytes, because `String` compares by canonical equivalence, under which two
/// different keys can be equal.
package enum StrictJSON: Equatable {
    case object([[UInt8]: StrictJSON])
    case array([StrictJSON])
    case string([UInt8])
    case integer(UInt64)
    case boolean(Bool)
    case null
}

/// The caller's own error, with a message for people. A generic error spares each caller a conversion.
package protocol JSONFailure: Error {
    init(malformed reason: String)
}

/// A recursive descent parser.
struct JSONParser<Failure: JSONFailure> {
    /// The deepest nesting of objects and arrays. vaultfs.json needs 4. The limit bounds the recursion.
    private static var maximumDepth: Int { 16 }
    private static var digits: ClosedRange<UInt8> { UInt8(ascii: "0")...UInt8(ascii: "9") }

    private let bytes: [UInt8]
    private var position = 0
    private let context: String

    /// Returns the value spelled by `bytes`. White space may surround it.
    /// - Throws: a failure with the offset of the wrong byte, counted from 0.
    static func parse(_ bytes: [UInt8], context: String, maximumSize: Int) throws(Failure) -> StrictJSON {
        guard bytes.count <= maximumSize else {
            throw Failure(malformed: "\(context): \(bytes.count) bytes are more than \(maximumSize)")
        }
        guard !bytes.starts(with: [0xEF, 0xBB, 0xBF]) else {
            throw Failure(malformed: "\(context): starts with a byte order mark")
        }
        guard String(validating: bytes, as: UTF8.self) != nil else {
            throw Failure(malformed: "\(context): not valid UTF-8")
        }
        var parser = Self(bytes: bytes, context: context)
        let value = try parser.value(depth: 0)
        parser.skipWhitespace()
        guard parser.position == bytes.count else { throw parser.error("something follows the end") }
        return value
    }

    private init(bytes: [UInt8], context: String) {
        self.bytes = bytes
        self.context = context
    }

    // MARK: values

    private mutating func value(depth: Int) throws(Failure) -> StrictJSON {
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
        default: throw error("a value is missing here")
        }
    }

    private mutating func object(depth: Int) throws(Failure) -> [[UInt8]: StrictJSON] {
        var members: [[UInt8]: StrictJSON] = [:]
        try open(depth: depth)
        if skip(UInt8(ascii: "}")) { return members }
        repeat {
            skipWhitespace()
            guard next == UInt8(ascii: "\"") else { throw error("a member name in quotes is missing here") }
            let start = position
            let key = try string()
            guard skip(UInt8(ascii: ":")) else { throw error("no ':' after a member name") }
            let value = try self.value(depth: depth)
            guard members.updateValue(value, forKey: key) == nil else {
                position = start
                throw error("duplicate member '\(shown(key))'")
            }
        } while skip(UInt8(ascii: ","))
        guard skip(UInt8(ascii: "}")) else { throw error("no ',' or '}' after a member") }
        return members
    }

    private mutating func array(depth: Int) throws(Failure) -> [StrictJSON] {
        var values: [StrictJSON] = []
        try open(depth: depth)
        if skip(UInt8(ascii: "]")) { return values }
        repeat { values.append(try value(depth: depth)) } while skip(UInt8(ascii: ","))
        guard skip(UInt8(ascii: "]")) else { throw error("no ',' or ']' after an element") }
        return values
    }

    private mutating func open(depth: Int) throws(Failure) {
        guard depth <= Self.maximumDepth else { throw error("nested deeper than \(Self.maximumDepth)") }
        position += 1
    }

    /// Parses an integer within 64 bits: `0|[1-9][0-9]*`
    private mutating func integer() throws(Failure) -> UInt64 {
        let digits = bytes[position...].prefix { Self.digits.contains($0) }
        guard digits.count == 1 || digits.first != UInt8(ascii: "0") else { throw error("a zero leads an integer") }
        guard let result = UInt64(String(decoding: digits, as: UTF8.self)) else {
            throw error("an integer of more than 64 bits")
        }
        position = digits.endIndex
        if let next, [UInt8(ascii: "."), UInt8(ascii: "e"), UInt8(ascii: "E")].contains(next) {
            throw error("a number that is not written as an integer")
        }
        return result
    }

    private mutating func literal(_ text: String, _ value: StrictJSON) throws(Failure) -> StrictJSON {
        guard bytes[position...].starts(with: text.utf8) else { throw error("a value is missing here") }
        position += text.utf8.count
        return value
    }

    // MARK: strings

    private mutating func string() throws(Failure) -> [UInt8] {
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
            case ..<0x20: throw error("a control character in a string")
            default:
                position += 1
                result.append(byte)
            }
        }
        throw error("ends inside a string")
    }

    /// Returns the bytes of the escape sequence after its backslash.
    private mutating func escaped() throws(Failure) -> [UInt8] {
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

    /// Returns the character after `\u`: one unit, or a surrogate pair in two escapes.
    private mutating func escapedScalar() throws(Failure) -> Unicode.Scalar {
        var code = try escapedUnit()
        if (0xD800..<0xDC00).contains(code), bytes[position...].starts(with: "\\u".utf8) {
            position += 2
            let low = try escapedUnit()
            guard (0xDC00..<0xE000).contains(low) else { throw error("half a surrogate pair") }
            code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00)
        }
        guard let scalar = Unicode.Scalar(code) else { throw error("half a surrogate pair") }
        return scalar
    }

    private mutating func escapedUnit() throws(Failure) -> UInt32 {
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

    // MARK: bytes

    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func skipWhitespace() {
        while let next, next == 0x20 || next == 0x0A || next == 0x09 || next == 0x0D { position += 1 }
    }

    private mutating func skip(_ byte: UInt8) -> Bool {
        skipWhitespace()
        guard next == byte else { return false }
        position += 1
        return true
    }

    private func error(_ what: String) -> Failure { Failure(malformed: "\(context): byte \(position): \(what)") }
}
