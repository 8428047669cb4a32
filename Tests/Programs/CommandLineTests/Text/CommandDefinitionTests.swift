import Testing

@testable import ArgumentParser
@testable import vaultfs

/// The definitions of commands and options. `scripts/test` runs an optimized build, in which ArgumentParser does not
/// check them. It does at each start of a debug build.
@Suite struct CommandDefinitionTests {
    @Test("names, positions and keys of all options fit together")
    func namesPositionsAndKeys() throws { try check(VaultFS.self) }

    #if !DEBUG
    // ArgumentParser of a debug build ends the process for such a name.
    @Test("a name used twice is found, in a group too")
    func nameUsedTwiceIsFound() {
        #expect(throws: (any Error).self) { try checkOptions(NameTwice.self) }
        #expect(throws: (any Error).self) { try checkOptions(GroupWithNameTwice.self) }
    }
    #endif

    private func check(_ command: any ParsableCommand.Type) throws {
        try checkOptions(command)
        for subcommand in command.configuration.subcommands { try check(subcommand) }
    }

    private func checkOptions(_ options: any ParsableArguments.Type) throws {
        try options._validate(parent: nil)
        for child in Mirror(reflecting: options.init()).children {
            if let group = child.value as? any GroupOfOptions { try checkOptions(group.options) }
        }
    }

    private struct NameTwice: ParsableArguments {
        @Flag(name: .customLong("name")) var first = false
        @Flag(name: .customLong("name")) var second = false
    }

    private struct GroupWithNameTwice: ParsableArguments {
        @OptionGroup var group: NameTwice
    }
}

private protocol GroupOfOptions {
    var options: any ParsableArguments.Type { get }
}

extension OptionGroup: GroupOfOptions {
    fileprivate var options: any ParsableArguments.Type { Value.self }
}
