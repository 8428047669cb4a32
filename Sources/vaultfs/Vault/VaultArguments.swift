internal import ArgumentParser

/// What every command takes that opens a vault itself.
struct VaultArguments: ParsableArguments {
    @Argument(help: "The vault directory.")
    var vault: PathArgument

    @Flag(help: "Print JSON.")
    var json = false

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions
}
