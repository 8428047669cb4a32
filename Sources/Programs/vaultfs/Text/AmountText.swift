/// Numbers for people.
enum AmountText {
    /// `1 file`, `2 files`
    static func counted(_ number: Int, _ one: String, _ many: String? = nil) -> String {
        "\(number) \(number == 1 ? one : many ?? one + "s")"
    }

    /// Bytes with a unit, to a tenth.
    static func bytes(_ bytes: Double) -> String {
        var value = bytes
        var unit = "B"
        for larger in ["KiB", "MiB", "GiB", "TiB"] where value >= 1024 {
            value /= 1024
            unit = larger
        }
        return unit == "B" ? "\(Int(value)) B" : "\((value * 10).rounded() / 10) \(unit)"
    }

    /// `[##########          ]  50%`
    /// - Parameter part: 0 to 1.
    static func bar(_ part: Double) -> String {
        let width = 20
        let marks = Int(part * Double(width))
        let percent = "\(Int(part * 100))"
        return "[" + String(repeating: "#", count: marks) + String(repeating: " ", count: width - marks) + "] "
            + String(repeating: " ", count: 3 - percent.count) + percent + "%"
    }

    /// A time span in its two largest units.
    static func short(seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(seconds) s"
        case ..<3600: "\(seconds / 60) min"
        case ..<86400: "\(seconds / 3600) h \(seconds / 60 % 60) min"
        default: "\(seconds / 86400) d \(seconds / 3600 % 24) h"
        }
    }
}
