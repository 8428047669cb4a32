internal import ArgumentParser
internal import VaultFormat

/// How long a slot opens from its first use on: a time span in whole seconds, or `none`.
enum PlayWindowArgument: Equatable {
    case seconds(Int)
    case none

    static func parse(_ text: String) throws -> PlayWindowArgument {
        if text == "none" { return .none }
        guard let duration = DurationArgument(argument: text), duration.milliseconds.isMultiple(of: 1000),
            PlayWindow.lengths.contains(duration.milliseconds / 1000)
        else { throw ValidationError("not \(DurationArgument.form), in whole seconds, nor none") }
        return .seconds(duration.milliseconds / 1000)
    }

    /// A window that was not started; nil for none.
    func window() throws(FormatError) -> PlayWindow? {
        switch self {
        case .seconds(let seconds): try PlayWindow(seconds: seconds)
        case .none: nil
        }
    }
}
