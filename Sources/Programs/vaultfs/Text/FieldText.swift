/// Fields of a structure for people.
enum FieldText {
    /// `cacheHits` → `cache hits`
    static func words(_ name: String) -> String {
        Console.shown(name.map { $0.isUppercase ? " \($0.lowercased())" : String($0) }.joined())
    }

    /// Returns the names and values of a structure's fields, by name. Leaves out fields without a value.
    static func fields(of value: Any, without hidden: Set<String> = []) -> [(name: String, text: String)] {
        Mirror(reflecting: value).children.compactMap { child in
            guard let name = child.label, !hidden.contains(name) else { return nil }
            return line(child.value).map { (words(name), $0) }
        }.sorted { $0.name < $1.name }
    }

    /// Returns one line, or nil for nil.
    static func line(_ value: Any) -> String? {
        switch value {
        case let isTrue as Bool: return isTrue ? "yes" : "no"
        case let number as any BinaryInteger: return "\(number)"
        case let number as Double: return rounded(number)
        case let text as String: return Console.shown(text)
        case let constant as any RawRepresentable: return line(constant.rawValue)
        case let values as [Any]: return values.isEmpty ? "none" : values.compactMap(line).joined(separator: ", ")
        default:
            let mirror = Mirror(reflecting: value)
            if mirror.displayStyle == .optional { return mirror.children.first.flatMap { line($0.value) } }
            return text(of: value)
        }
    }

    /// Returns the fields in one line.
    static func text(of value: Any, without hidden: Set<String> = []) -> String {
        fields(of: value, without: hidden).map { "\($0.name) \($0.text)" }.joined(separator: ", ")
    }

    /// Returns the number with at most three decimal places.
    static func rounded(_ number: Double) -> String {
        guard abs(number) < 1e12 else { return "\(number)" }
        let rounded = (number * 1000).rounded() / 1000
        return rounded == rounded.rounded() ? "\(Int64(rounded))" : "\(rounded)"
    }
}
