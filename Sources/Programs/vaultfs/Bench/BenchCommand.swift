internal import ArgumentParser
internal import Daemon

/// `vaultfs bench PATH`
struct BenchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench", abstract: "Measure random reads of a file or a directory.",
        discussion: """
            In a directory, makes a file of random bytes and removes it at the end. A file is only read. Each line of the \
            table is one run. 'page cache': reads through the kernel's page cache, which is empty at the start of the run. \
            'none': every read goes to the file system (O_DIRECT).
            """)

    @Argument(help: "A directory, or an existing file.")
    var path: PathArgument

    @Option(help: ArgumentHelp("Size of the file that is made, such as 64M.", valueName: "size"))
    var size = ByteSize(256 << 20)

    @Option(help: ArgumentHelp("Sizes of a read, such as 4K,64K.", valueName: "sizes"))
    var blockSizes = CommaList([ByteSize(4096), ByteSize(65536)])

    @Option(help: ArgumentHelp("Numbers of threads that read at once, such as 1,4.", valueName: "counts"))
    var jobs = CommaList([1, 4])

    @Option(
        help: ArgumentHelp("The time of each run: 5s, 500ms, 1m.", valueName: "time"), transform: DurationArgument.parse
    )
    var duration = DurationArgument(milliseconds: 5000)

    @Flag(help: "Print JSON.")
    var json = false

    func validate() throws {
        for blockSize in blockSizes.values where blockSize.bytes < 512 || blockSize.bytes % 512 != 0 {
            throw ValidationError("block size \(blockSize) is not a multiple of 512")
        }
        guard let largest = blockSizes.values.map(\.bytes).max(), largest <= 64 << 20 else {
            throw ValidationError("block sizes are at most 64M")
        }
        guard jobs.values.allSatisfy({ (1...256).contains($0) }) else { throw ValidationError("jobs are not in 1…256") }
        guard duration.milliseconds > 0 else { throw ValidationError("--duration 0 measures nothing") }
        guard size.bytes >= largest else { throw ValidationError("a file of \(size) is smaller than a block") }
    }

    func run() throws {
        Signals.block(Signals.ending)
        let progress = ProgressLine()
        let file = try BenchFile(path: path.path)
        try Signals.onArrival(of: Signals.ending) { number in
            progress.clear()
            file.remove()
            Signals.end(by: number)
        }
        defer { file.remove() }
        defer { progress.clear() }
        if file.isTemporary { try file.fill(size: size.bytes, progress: progress) }
        let target = try BenchTarget(file, largestBlock: blockSizes.values.map(\.bytes).max() ?? 0)
        var results: [BenchResult] = []
        for cache in BenchRun.Cache.allCases {
            for blockSize in blockSizes.values {
                for jobCount in jobs.values {
                    let run = BenchRun(
                        target: target, cache: cache, blockSize: blockSize.bytes, jobs: jobCount,
                        duration: .milliseconds(duration.milliseconds))
                    results.append(try run.measure(progress: progress))
                }
            }
        }
        progress.clear()
        let report = BenchReport(target, path: path.path, isTemporary: file.isTemporary, results: results)
        if json { try Console.printJSON(report) } else { report.printTable() }
    }
}

/// Values separated by commas on the command line.
struct CommaList<Value: ExpressibleByArgument & CustomStringConvertible>: ExpressibleByArgument {
    let values: [Value]

    init(_ values: [Value]) { self.values = values }

    init?(argument: String) {
        let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
        let values = parts.compactMap { Value(argument: String($0)) }
        guard values.count == parts.count else { return nil }
        self.values = values
    }

    var defaultValueDescription: String { values.map(\.description).joined(separator: ",") }
}
