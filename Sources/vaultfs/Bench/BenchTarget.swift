internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// The file, open for reading both ways: through the page cache, and past it. Any thread.
final class BenchTarget: Sendable {
    let size: Int
    /// False where the file system refuses O_DIRECT: then pages are dropped before each read instead.
    let isDirect: Bool
    private let cached: Descriptor
    private let uncached: Descriptor

    init(_ file: BenchFile, largestBlock: Int) throws(CommandFailure) {
        let fd = file.path.withPlatformString { open($0, O_RDONLY | O_CLOEXEC) }
        guard fd >= 0 else { throw file.failure("open") }
        cached = Descriptor(owning: fd)
        do throws(StoreError) {
            size = Int(try cached.status().st_size)
        } catch {
            throw CommandFailure(.failure, "cannot look at \(file.path.shown): \(error.errno)")
        }
        guard size >= largestBlock else {
            throw CommandFailure(.usage, "\(file.path.shown) has \(size) bytes, less than a block of \(largestBlock)")
        }
        let direct = file.path.withPlatformString { open($0, O_RDONLY | O_CLOEXEC | linux_O_DIRECT) }
        if direct >= 0, Self.reads(direct) {
            uncached = Descriptor(owning: direct)
            isDirect = true
        } else {
            if direct >= 0 { close(direct) }
            uncached = cached
            isDirect = false
        }
    }

    /// Some file systems refuse O_DIRECT at open(2), some only when it comes to reading.
    private static func reads(_ fd: Int32) -> Bool {
        let block = UnsafeMutableRawPointer.allocate(byteCount: 4096, alignment: 4096)
        defer { block.deallocate() }
        return pread(fd, block, 4096, 0) >= 0
    }

    func descriptor(_ cache: BenchRun.Cache) -> Int32 {
        switch cache {
        case .pageCache: cached.fd
        case .none: uncached.fd
        }
    }

    /// Whether pages are to be dropped before each read.
    func needsDropping(_ cache: BenchRun.Cache) -> Bool { cache == .none && !isDirect }

    /// Empties the page cache of the file, and turns read-ahead off.
    func prepare() {
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_DONTNEED)
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_RANDOM)
    }
}
