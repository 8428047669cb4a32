internal import ArgumentParser

/// A number of bytes on the command line: `4096`, `32M`, `1GiB`. K, M, G and T are powers of 1024.
struct ByteSize: ExpressibleByArgument, Equatable, CustomStringConvertible {
    let bytes: Int

    private static let suffixes = ["", "K", "M", "G", "T"]

    init(_ bytes: Int) { self.bytes = bytes }

    init?(argument: String) {
        let digits = argument.prefix { $0.isASCII && $0.isNumber }
        var suffix = argument.dropFirst(digits.count).uppercased()[...]
        if suffix.hasSuffix("IB") {
            suffix = suffix.dropLast(2)
            guard !suffix.isEmpty else { return nil }
        } else if suffix.hasSuffix("B") {
            suffix = suffix.dropLast()
        }
        guard let number = Int(digits), let power = Self.suffixes.firstIndex(of: String(suffix)) else {
            return nil
        }
        let (bytes, overflow) = number.multipliedReportingOverflow(by: 1 << (10 * power))
        guard !overflow else { return nil }
        self.bytes = bytes
    }

    var description: String {
        // Avoid a loop over an array of pairs: the compiler unrolls it into one of two instruction orders, by chance.
        var power = 0
        while power < 3, bytes > 0, (bytes >> (10 * power)) % 1024 == 0 { power += 1 }
        return "\(bytes >> (10 * power))\(Self.suffixes[power])"
    }
}

/// A time span on the command line, with a unit: `90s`, `1.5m`, `500ms`, `2h`, `1d`. Only 0 needs none.
struct DurationArgument: Equatable, CustomStringConvertible {
    let milliseconds: Int

    private static let units: [(suffix: String, milliseconds: Double)] = [
        ("ms", 1), ("s", 1000), ("min", 60_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
    ]
    /// The form, for messages.
    static let form = "a time such as 90s, 5m, 2h or 30d, at most 365d"
    /// A year, in milliseconds. A longer time is a mistake.
    private static let longest = 365.0 * 86_400_000

    /// Does the same as `init(argument:)`, with an error that lists the valid forms.
    static func parse(_ text: String) throws -> DurationArgument {
        guard let duration = DurationArgument(argument: text) else { throw ValidationError("not \(form)") }
        return duration
    }

    var description: String { milliseconds % 1000 == 0 ? "\(milliseconds / 1000)s" : "\(milliseconds)ms" }
}

extension DurationArgument {
    init?(argument: String) {
        let number = argument.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
        guard let value = Double(number), value >= 0 else { return nil }
        let suffix = argument.dropFirst(number.count)
        // Refuse a bare number, which some users would mean as minutes, and others as seconds.
        guard let unit = Self.units.first(where: { $0.suffix == (suffix.isEmpty && value == 0 ? "s" : suffix) }) else {
            return nil
        }
        let milliseconds = value * unit.milliseconds
        guard milliseconds <= Self.longest else { return nil }
        self.milliseconds = Int(milliseconds.rounded())
    }
}
