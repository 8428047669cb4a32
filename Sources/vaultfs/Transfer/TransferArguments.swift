internal import ArgumentParser
internal import Transfer

/// What `import` and `export` of a vault have in common.
struct TransferArguments: ParsableArguments {
    @Flag(help: "Replace files that are there and differ; with --verify, also where only their contents do.")
    var overwrite = false

    @Flag(
        help:
            "Then read everything back from disk, what was there already too, and compare it with the source; a wrong copy is removed."
    )
    var verify = false

    @Flag(help: "Print JSON at the end.")
    var json = false

    var options: TransferOptions {
        var options = TransferOptions()
        options.isReplacing = overwrite
        options.looksAtContents = overwrite && verify
        return options
    }
}
