internal import ArgumentParser

/// A number of bytes on the command line: `4096`, `32M`, `1GiB`. K, M, G and T are powers of 1024.
struct ByteSize: ExpressibleByArgument, Equatable, CustomStringConvertible {
    let bytes: Int

    init(_ bytes: Int) {
        self.bytes = bytes
    }

    init?(argument: String) {
        let digits = argument.prefix { $0.isASCII && $0.isNumber }
        var suffix = argument.dropFirst(digits.count).uppercased()[...]
        if suffix.hasSuffix("IB") {
            suffix = suffix.dropLast(2)
            guard !suffix.isEmpty else { return nil }
        } else if suffix.hasSuffix("B") {
            suffix = suffix.dropLast()
        }
        guard let number = Int(digits), let power = ["", "K", "M", "G", "T"].firstIndex(of: String(suffix)) else {
            return nil
        }
        let (bytes, overflow) = number.multipliedReportingOverflow(by: 1 << (10 * power))
        guard !overflow else { return nil }
        self.bytes = bytes
    }

    var description: String {
        for (power, suffix) in [(3, "G"), (2, "M"), (1, "K")] where bytes > 0 && bytes % (1 << (10 * power)) == 0 {
            return "\(bytes >> (10 * power))\(suffix)"
        }
        return "\(bytes)"
    }

    var defaultValueDescription: String { description }
}
