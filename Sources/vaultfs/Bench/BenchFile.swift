internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// The file that is read: an existing one, or a temporary one in a directory. Any thread.
final class BenchFile: Sendable {
    let path: FilePath
    let isTemporary: Bool
    private let isRemoved = Atomic<Bool>(false)

    init(path: FilePath) throws(CommandFailure) {
        var status = stat()
        guard path.withPlatformString({ stat($0, &status) }) == 0 else {
            throw CommandFailure(.failure, "cannot examine \(path.shown): \(currentErrno())")
        }
        switch status.st_mode & S_IFMT {
        case S_IFDIR:
            isTemporary = true
            self.path = path.appending(".vaultfs-bench." + String(UInt64.random(in: 0 ... .max), radix: 16))
        case S_IFREG:
            isTemporary = false
            self.path = path
        default:
            throw CommandFailure(.failure, "neither a directory nor a file: \(path.shown)")
        }
    }

    /// Removes a temporary file.
    func remove() {
        guard isTemporary, !isRemoved.exchange(true, ordering: .relaxed) else { return }
        _ = path.withPlatformString { unlink($0) }
    }

    /// Makes the file from random bytes, and waits for the disk.
    func fill(size: Int, progress: ProgressLine) throws(CommandFailure) {
        let fd = path.withPlatformString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600) }
        guard fd >= 0 else { throw failure("make") }
        let descriptor = Descriptor(owning: fd)
        let block = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
        defer { block.deallocate() }
        do throws(CryptoError) {
            try SecureRandom.fill(block)
        } catch {
            throw CommandFailure(.failure, "cannot draw random bytes: \(error)")
        }
        do throws(StoreError) {
            var done = 0
            while done < size {
                // Each block is different: a store may find duplicates.
                block.storeBytes(of: UInt64(done), as: UInt64.self)
                let piece = UnsafeRawBufferPointer(rebasing: block[..<min(block.count, size - done)])
                try descriptor.write(piece, at: UInt64(done))
                done += piece.count
                progress.show("making a file: \(done * 100 / size) %")
            }
            progress.show("making a file: waiting for the disk")
            try descriptor.synchronize(dataOnly: false)
        } catch {
            throw CommandFailure(.failure, "cannot write \(path.shown): \(error.errno)")
        }
    }

    func failure(_ verb: String) -> CommandFailure {
        CommandFailure(.failure, "cannot \(verb) \(path.shown): \(currentErrno())")
    }
}

/// The file, open for reading through the page cache and past it. Any thread.
final class BenchTarget: Sendable {
    let size: Int
    /// False if the file system refuses O_DIRECT. Pages are then dropped before each read.
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
            throw CommandFailure(.failure, "cannot examine \(file.path.shown): \(error.errno)")
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

    /// Some file systems refuse O_DIRECT only when reading.
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

    /// True if pages must be dropped before each read.
    func needsDropping(_ cache: BenchRun.Cache) -> Bool { cache == .none && !isDirect }

    /// Empties the file's page cache and turns read-ahead off.
    func prepare() {
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_DONTNEED)
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_RANDOM)
    }
}
