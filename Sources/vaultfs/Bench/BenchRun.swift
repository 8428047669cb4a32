internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultStore

/// One measurement: random reads of one size by some threads, for a time.
struct BenchRun {
    /// The cache between the reader and the file system.
    enum Cache: String, CaseIterable, Codable, Sendable {
        case pageCache = "page cache"
        case none
    }

    let target: BenchTarget
    let cache: Cache
    let blockSize: Int
    let jobs: Int
    let duration: Duration

    func measure(progress: ProgressLine) throws(CommandFailure) -> BenchResult {
        target.prepare()
        let workers = (0..<jobs).map { _ in BenchWorker(self) }
        var threads: [BackgroundThread] = []
        let start = ContinuousClock.now
        do throws(StoreError) {
            for worker in workers { threads.append(try BackgroundThread { worker.run(until: start + duration) }) }
        } catch {
            throw CommandFailure(.failure, "cannot start \(jobs) threads: \(error.errno)")
        }
        while ContinuousClock.now < start + duration, progress.isShown {
            let left = (start + duration - ContinuousClock.now).components.seconds + 1
            progress.show("\(ByteSize(blockSize)) reads, \(jobs) at once, cache: \(cache.rawValue): \(left) s")
            usleep(100_000)
        }
        for thread in threads { thread.join() }
        let seconds = (ContinuousClock.now - start).inSeconds
        var times: [UInt32] = []
        for worker in workers {
            let outcome = worker.outcome.withLock { $0 }
            if let error = outcome.error { throw CommandFailure(.failure, "a read failed: \(error)") }
            times += outcome.times
        }
        return BenchResult(self, times: times.sorted(), seconds: seconds)
    }
}

/// One thread of a run.
final class BenchWorker: Sendable {
    struct Outcome {
        /// Of each read, in units of 10 ns, which hold 43 s.
        var times: [UInt32] = []
        var error: Errno?
    }

    let outcome = Mutex(Outcome())
    private let descriptor: Int32
    private let dropsPages: Bool
    private let blockSize: Int
    private let blockCount: Int

    init(_ run: BenchRun) {
        descriptor = run.target.descriptor(run.cache)
        dropsPages = run.target.needsDropping(run.cache)
        blockSize = run.blockSize
        blockCount = run.target.size / run.blockSize
    }

    func run(until end: ContinuousClock.Instant) {
        let block = UnsafeMutableRawPointer.allocate(byteCount: blockSize, alignment: 4096)
        defer { block.deallocate() }
        var random = RandomBlocks()
        var times: [UInt32] = []
        var now = ContinuousClock.now
        while now < end {
            let offset = off_t(Int(random.next() % UInt64(blockCount)) * blockSize)
            if dropsPages {
                posix_fadvise(descriptor, offset, off_t(blockSize), POSIX_FADV_DONTNEED)
                now = .now
            }
            let count = pread(descriptor, block, blockSize, offset)
            let error = count < 0 ? currentErrno() : nil
            let after = ContinuousClock.now
            guard count == blockSize else {
                outcome.withLock { $0.error = error ?? .ioError }
                return
            }
            times.append(UInt32(clamping: Int64((after - now).inSeconds * 1e8)))
            now = after
        }
        outcome.withLock { $0.times = times }
    }
}

/// xorshift64* (Vigna, 2014): quick, and good enough to choose blocks.
private struct RandomBlocks {
    private var state = UInt64.random(in: 1 ... .max)

    mutating func next() -> UInt64 {
        state ^= state >> 12
        state ^= state << 25
        state ^= state >> 27
        return (state &* 0x2545_F491_4F6C_DD1D) >> 11
    }
}

extension Duration {
    var inSeconds: Double {
        Double(components.seconds) + Double(components.attoseconds) * 1e-18
    }
}
