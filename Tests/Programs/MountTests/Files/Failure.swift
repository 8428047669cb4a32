import TestSupport
import Testing

/// The exit codes of the command line, as documented in its help.
enum Failure: Int32 {
    case failure = 1
    case usage = 2
    case notAVault = 3
    case wrongSecret = 4
    case inUse = 5
    case mountpoint = 6
    case cannotMount = 7
    case damageFound = 8
    case notPurged = 9
    case lockFileExists = 10
    case notEnded = 13
    case undetermined = 14
    case notDurable = 15
    case problems = 16
}

/// Expects the exit code, and one line on standard error: it begins with `vaultfs: `, in lower case, and has no full
/// stop.
func expectFailure(
    _ result: CommandResult, _ failure: Failure, naming words: String...,
    sourceLocation: SourceLocation = #_sourceLocation
) {
    #expect(result.exitCode == failure.rawValue, "\(result)", sourceLocation: sourceLocation)
    let lines = result.errors.split(separator: "\n", omittingEmptySubsequences: false)
    // The usage follows wrong usage.
    #expect(failure == .usage || lines.count == 2, "\(result)", sourceLocation: sourceLocation)
    #expect(lines.last == "", "\(result)", sourceLocation: sourceLocation)
    #expect(result.errors.hasPrefix("vaultfs: "), "\(result)", sourceLocation: sourceLocation)
    #expect(lines.first?.hasSuffix(".") == false, "\(result)", sourceLocation: sourceLocation)
    for word in words { #expect(result.errors.contains(word), "\(result)", sourceLocation: sourceLocation) }
}
