/// Time spans for people.
enum TimeSpanText {
    /// In its two largest units.
    static func short(_ seconds: Int64) -> String {
        switch seconds {
        case ..<60: "\(seconds) s"
        case ..<3600: "\(seconds / 60) min"
        case ..<86400: "\(seconds / 3600) h \(seconds / 60 % 60) min"
        default: "\(seconds / 86400) d \(seconds / 3600 % 24) h"
        }
    }
}
