internal import ArgumentParser
internal import FoundationEssentials

/// `vaultfs-micro`: the time of the pieces that reads and writes are made of, by themselves, on one thread.
@main
struct Micro: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "vaultfs-micro", abstract: "Measure cryptography and the block cache by themselves.")

    @Option(help: "How often each is run; the median counts.")
    var runs = 9

    @Option(help: ArgumentHelp("The time that a run takes at least.", valueName: "milliseconds"))
    var runTime = 20

    @Option(help: ArgumentHelp("Only those in whose names this is.", valueName: "text"))
    var filter = ""

    @Flag(help: "Print JSON.")
    var json = false

    func validate() throws {
        guard (1...1000).contains(runs) else { throw ValidationError("runs are not in 1…1000") }
        guard (1...10_000).contains(runTime) else { throw ValidationError("the time of a run is not in 1…10000") }
    }

    mutating func run() throws {
        var stopwatch = Stopwatch(runs: runs, runTime: Double(runTime) * 1e6, filter: filter, isQuiet: json)
        if !json { Stopwatch.showHead() }
        try CryptoBenchmarks.run(&stopwatch)
        try CacheBenchmarks.run(&stopwatch)
        guard json else { return }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        print(String(decoding: try encoder.encode(stopwatch.measurements), as: UTF8.self))
    }
}
