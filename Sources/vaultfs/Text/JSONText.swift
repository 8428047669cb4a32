internal import Control

/// JSON values for people.
enum JSONText {
    /// `cacheHits` → `cache hits`
    static func words(_ name: String) -> String {
        Console.shown(name.map { $0.isUppercase ? " \($0.lowercased())" : String($0) }.joined())
    }

    /// One line. Nil for null.
    static func line(_ value: JSONValue) -> String? {
        switch value {
        case .null: nil
        case .bool(let isTrue): isTrue ? "yes" : "no"
        case .integer(let number): "\(number)"
        case .unsigned(let number): "\(number)"
        case .number(let number): rounded(number)
        case .string(let text): Console.shown(text)
        case .array(let values): values.isEmpty ? "none" : values.compactMap(line).joined(separator: ", ")
        case .object(let fields): line(fields)
        }
    }

    private static func line(_ fields: [String: JSONValue]) -> String {
        let parts = fields.sorted { $0.key < $1.key }.compactMap { name, value in
            line(value).map { "\(words(name)) \($0)" }
        }
        return parts.isEmpty ? "none" : parts.joined(separator: ", ")
    }

    /// At most three decimal places.
    static func rounded(_ number: Double) -> String {
        guard abs(number) < 1e12 else { return "\(number)" }
        let rounded = (number * 1000).rounded() / 1000
        return rounded == rounded.rounded() ? "\(Int64(rounded))" : "\(rounded)"
    }
}
