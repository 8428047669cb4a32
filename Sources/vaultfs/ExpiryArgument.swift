internal import ArgumentParser
internal import BackingStore
internal import Glibc
internal import VaultFormat

/// When a slot expires: after a time span from now (`30d`), at a time (`2027-01-01T00:00:00Z`), or `never`.
enum ExpiryArgument: ExpressibleByArgument, Equatable {
    case after(DurationArgument)
    case at(String)
    case never

    init?(argument: String) {
        if argument == "never" {
            self = .never
        } else if let duration = DurationArgument(argument: argument) {
            self = .after(duration)
        } else if Timestamp.isValid(Array(argument.utf8)) {
            self = .at(argument)
        } else {
            return nil
        }
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
