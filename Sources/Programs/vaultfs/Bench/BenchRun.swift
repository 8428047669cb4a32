internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// One measurement: random reads of one size by some threads, for a time.
struct BenchRun: Sendable {
    /// The cache between the reader and the file system.
    enum Cache: String, CaseIterable, Codable, Sendable {
        case pageCache = "page cache"
        case none
    }

    let target: BenchTarget
    let cache: Cache
    let blockSize, jobs: Int
    let duration: Duration

    func measure(progress: ProgressLine) throws(CommandFailure) -> BenchResult {
        target.prepare()
        let outcomes = Monitor([Result<[UInt32], Errno>]())
        var threads: [BackgroundThread] = []
        let start = ContinuousClock.now
        do throws(StoreError) {
            for _ in 0..<jobs {
                threads.append(
                    try BackgroundThread {
                        let outcome = read(until: start + duration)
                        outcomes.access { $0.append(outcome) }
                    })
            }
        } catch {
            throw CommandFailure(.failure, "cannot start \(jobs) threads: \(error.errno)")
        }
        while ContinuousClock.now < start + duration, progress.isShown {
            let left = (start + duration - ContinuousClock.now).components.seconds + 1
            progress.show(["\(ByteSize(blockSize)) reads, \(jobs) at once, cache: \(cache.rawValue): \(left) s"])
            usleep(100_000)
        }
        for thread in threads { thread.join() }
        let seconds = (ContinuousClock.now - start) / .seconds(1)
        var times: [UInt32] = []
        do throws(Errno) { for outcome in outcomes.access({ $0 }) { times += try outcome.get() } } catch {
            throw CommandFailure(.failure, "a read failed: \(error)")
        }
        return BenchResult(self, times: times.sorted(), seconds: seconds)
    }

    /// Reads on one thread.
    /// - Returns: the time of each read, in units of 10 ns, of which a UInt32 holds 43 s.
    private func read(until end: ContinuousClock.Instant) -> Result<[UInt32], Errno> {
        let blockCount = target.size / blockSize
        let descriptor = cache == .pageCache ? target.cached.fd : target.uncached.fd
        let dropsPages = cache == .none && !target.isDirect
        let block = UnsafeMutableRawPointer.allocate(byteCount: blockSize, alignment: 4096)
        defer { block.deallocate() }
        var seed = (0..<3).map { _ in UInt16.random(in: 0 ... .max) }
        var times: [UInt32] = []
        var now = ContinuousClock.now
        while now < end {
            let offset = off_t(nrand48(&seed) % blockCount * blockSize)
            if dropsPages {
                posix_fadvise(descriptor, offset, off_t(blockSize), POSIX_FADV_DONTNEED)
                now = .now
            }
            let count = pread(descriptor, block, blockSize, offset)
            let error = count < 0 ? currentErrno() : nil
            let after = ContinuousClock.now
            guard count == blockSize else { return .failure(error ?? .ioError) }
            times.append(UInt32(clamping: Int64((after - now) / .nanoseconds(10))))
            now = after
        }
        return .success(times)
    }
}
