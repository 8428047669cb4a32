internal import LinuxSystem
internal import SystemPackage

/// The result of a run. `--json` has the names of the fields.
struct BenchResult: Encodable {
    struct Latency: Encodable {
        let p50, p95, p99, p999, maximum: Double
    }

    let cache: BenchRun.Cache
    let blockSize, jobs: Int
    let seconds: Double
    let reads: UInt64
    let iops: Double
    /// 10⁶ bytes a second.
    let megabytesPerSecond: Double
    let latencyMicroseconds: Latency

    /// - Parameter times: of each read, in units of 10 ns, the shortest first.
    init(_ run: BenchRun, times: [UInt32], seconds: Double) {
        cache = run.cache
        blockSize = run.blockSize
        jobs = run.jobs
        self.seconds = seconds
        reads = UInt64(times.count)
        iops = Double(reads) / seconds
        megabytesPerSecond = iops * Double(run.blockSize) / 1e6
        // Use the nearest rank: the shortest time within which this percentage of the reads ended.
        func microseconds(_ percentile: Double) -> Double {
            let rank = Int((percentile / 100 * Double(times.count)).rounded(.up))
            return times.isEmpty ? 0 : Double(times[max(0, rank - 1)]) / 100
        }
        latencyMicroseconds = Latency(
            p50: microseconds(50), p95: microseconds(95), p99: microseconds(99), p999: microseconds(99.9),
            maximum: microseconds(100))
    }
}

/// The results of all runs. `--json` has the names of the fields.
struct BenchReport: Encodable {
    let path: String
    let fileSize: Int
    let isTemporaryFile: Bool
    /// The way past the page cache: `O_DIRECT`, or `fadvise` if the file system refuses it.
    let uncachedBy: String
    let results: [BenchResult]

    init(_ target: BenchTarget, path: FilePath, isTemporary: Bool, results: [BenchResult]) {
        self.path = path.string
        fileSize = target.size
        isTemporaryFile = isTemporary
        uncachedBy = target.isDirect ? "O_DIRECT" : "fadvise"
        self.results = results
    }

    func printTable() {
        print("Random reads of a file of \(ByteSize(fileSize)) in \(FilePath(path).shown); latencies in µs")
        if uncachedBy != "O_DIRECT" {
            print("O_DIRECT is refused here: 'none' drops the pages before each read instead (posix_fadvise)")
        }
        print("")
        let head = ["cache", "block", "jobs", "IOPS", "MB/s", "p50", "p95", "p99", "p99.9"]
        let rows = results.map { result in
            let latency = result.latencyMicroseconds
            return [result.cache.rawValue, ByteSize(result.blockSize).description, "\(result.jobs)"]
                + ["\(Int(result.iops.rounded()))"]
                + [result.megabytesPerSecond, latency.p50, latency.p95, latency.p99, latency.p999].map(fixed)
        }
        Console.printTable([head] + rows, numbers: 1)
    }

    /// One decimal place.
    private func fixed(_ value: Double) -> String {
        let tenths = Int((value * 10).rounded())
        return "\(tenths / 10).\(tenths % 10)"
    }
}
