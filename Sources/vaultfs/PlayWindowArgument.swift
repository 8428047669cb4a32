internal import ArgumentParser
internal import VaultFormat

/// How long a slot opens from its first mount on: a time span in whole seconds, or `none`.
enum PlayWindowArgument: ExpressibleByArgument, Equatable {
    case seconds(Int)
    case none

    init?(argument: String) {
        if argument == "none" {
            self = .none
            return
        }
        guard let duration = DurationArgument(argument: argument), duration.milliseconds.isMultiple(of: 1000),
            PlayWindow.lengths.contains(duration.milliseconds / 1000)
        else { return nil }
        self = .seconds(duration.milliseconds / 1000)
    }

    /// A window that was not started; nil for none.
    func window() throws(FormatError) -> PlayWindow? {
        switch self {
        case .seconds(let seconds): try PlayWindow(seconds: seconds)
        case .none: nil
        }
    }
}
