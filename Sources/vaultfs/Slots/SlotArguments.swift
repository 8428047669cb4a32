internal import ArgumentParser
internal import LinuxSystem
internal import VaultFormat

/// A slot's expiry: a time span from now (`30d`), a time (`2027-01-01T00:00:00Z`), or `never`.
struct ExpiryArgument {
    /// In `vaultfs.json`'s format. Nil for never.
    let time: String?

    static func parse(_ text: String) throws -> ExpiryArgument {
        if text == "never" { return ExpiryArgument(time: nil) }
        if let duration = DurationArgument(argument: text) {
            let end = UtcTime.secondsSinceEpoch() + Int64(duration.milliseconds / 1000)
            return ExpiryArgument(time: UtcTime.text(secondsSinceEpoch: end))
        }
        guard UtcTime.seconds(text.utf8) != nil else {
            throw ValidationError("not \(DurationArgument.form), nor one such as 2027-01-01T00:00:00Z, nor never")
        }
        return ExpiryArgument(time: text)
    }

    /// - Throws: code `usage` if it is not in the future.
    func check() throws(CommandFailure) {
        guard let time, time <= UtcTime.now() else { return }
        throw CommandFailure(.usage, "--expires \(time) is not in the future")
    }
}

/// A slot's play window, from its first use: a time span in whole seconds, or `none`.
struct PlayWindowArgument {
    /// Not started. Nil for none.
    let window: PlayWindow?

    static func parse(_ text: String) throws -> PlayWindowArgument {
        if text == "none" { return PlayWindowArgument(window: nil) }
        guard let duration = DurationArgument(argument: text), duration.milliseconds.isMultiple(of: 1000),
            let window = try? PlayWindow(seconds: duration.milliseconds / 1000)
        else { throw ValidationError("not \(DurationArgument.form), in whole seconds, nor none") }
        return PlayWindowArgument(window: window)
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
