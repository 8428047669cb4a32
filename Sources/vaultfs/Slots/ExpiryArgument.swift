internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// When a slot expires: after a time span from now (`30d`), at a time (`2027-01-01T00:00:00Z`), or `never`.
enum ExpiryArgument: Equatable {
    case after(DurationArgument)
    case at(String)
    case never

    static func parse(_ text: String) throws -> ExpiryArgument {
        if text == "never" { return .never }
        if let duration = DurationArgument(argument: text) { return .after(duration) }
        guard Timestamp.isValid(Array(text.utf8)) else {
            throw ValidationError("not \(DurationArgument.form), nor one such as 2027-01-01T00:00:00Z, nor never")
        }
        return .at(text)
    }

    /// As `vaultfs.json` has it; nil for never.
    /// - Parameter now: seconds since 1970-01-01T00:00:00Z.
    /// - Throws: code `usage` where that is not in the future.
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
