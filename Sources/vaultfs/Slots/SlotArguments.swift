internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// A slot's expiry: a time span from now (`30d`), a time (`2027-01-01T00:00:00Z`), or `never`.
enum ExpiryArgument: Equatable {
    case after(DurationArgument)
    case at(String)
    case never

    static func parse(_ text: String) throws -> ExpiryArgument {
        if text == "never" { return .never }
        if let duration = DurationArgument(argument: text) { return .after(duration) }
        guard UtcTime.seconds(text.utf8) != nil else {
            throw ValidationError("not \(DurationArgument.form), nor one such as 2027-01-01T00:00:00Z, nor never")
        }
        return .at(text)
    }

    /// The time in `vaultfs.json`'s format. Nil for never.
    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    /// - Throws: code `usage` if it is not in the future.
    func time(now: Int64 = Int64(Glibc.time(nil))) throws(CommandFailure) -> String? {
        let expires: String
        switch self {
        case .never: return nil
        case .after(let duration): expires = UtcTime.text(secondsSinceEpoch: now + Int64(duration.milliseconds / 1000))
        case .at(let time): expires = time
        }
        guard expires > UtcTime.text(secondsSinceEpoch: now) else {
            throw CommandFailure(.usage, "--expires \(expires) is not in the future")
        }
        return expires
    }
}

/// A slot's play window, from its first use: a time span in whole seconds, or `none`.
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

    /// The window, not started. Nil for none.
    func window() throws(FormatError) -> PlayWindow? {
        switch self {
        case .seconds(let seconds): try PlayWindow(seconds: seconds)
        case .none: nil
        }
    }
}

/// A slot's label on the command line. It must be UTF-8.
struct LabelArgument: ExpressibleByArgument {
    let text: String

    init?(argument: String) {
        guard let text = String(validating: ProcessArguments.bytes(of: argument), as: UTF8.self) else { return nil }
        self.text = text
    }
}
