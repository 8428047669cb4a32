internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// The measured file: an existing one, or a temporary one in a directory. Any thread.
final class BenchFile: Sendable {
    let path: FilePath
    let isTemporary: Bool

    init(path: FilePath) throws(CommandFailure) {
        let mode = try CommandFailure.wrapping(
            "cannot examine", path, try Descriptor(path: path, flags: linux_O_PATH).status().st_mode)
        isTemporary = mode & S_IFMT == S_IFDIR
        guard isTemporary || mode & S_IFMT == S_IFREG else {
            throw CommandFailure(.failure, "neither a directory nor a file: \(path.shown)")
        }
        let name = ".vaultfs-bench." + String(UInt64.random(in: 0 ... .max), radix: 16)
        self.path = isTemporary ? path.appending(name) : path
    }

    func remove() {
        if isTemporary { _ = path.withPlatformString { unlink($0) } }
    }

    /// Makes the file from random bytes, and waits for the disk.
    /// - Throws: code `usage` if the file system has no room for it.
    func fill(size: Int, progress: ProgressLine) throws(CommandFailure) {
        var space = statvfs()
        // Check only a known size, because some file systems do not know theirs.
        let isKnown =
            path.removingLastComponent().withPlatformString { statvfs($0, &space) } == 0 && space.f_blocks > 0
        if isKnown, UInt64(size) / max(1, UInt64(space.f_frsize)) > UInt64(space.f_bavail) {
            throw CommandFailure(.usage, "no room for a file of \(ByteSize(size)) there: choose a smaller --size")
        }
        let descriptor = try CommandFailure.wrapping(
            "cannot make", path, try Descriptor(path: path, flags: O_WRONLY | O_CREAT | O_EXCL, mode: 0o600))
        let block = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
        defer { block.deallocate() }
        do throws(CryptoError) { try SecureRandom.fill(block) } catch {
            throw CommandFailure(.failure, "cannot draw random bytes: \(error)")
        }
        do throws(StoreError) {
            var done = 0
            while done < size {
                // Make each block different, because a store may find duplicates.
                block.storeBytes(of: UInt64(done), as: UInt64.self)
                let piece = UnsafeRawBufferPointer(block.slice(..<min(block.count, size - done)))
                try descriptor.write(piece, at: UInt64(done))
                done += piece.count
                progress.show(["making a file: \(done * 100 / size) %"])
            }
            progress.show(["making a file: waiting for the disk"])
            try descriptor.synchronize(dataOnly: false)
        } catch {
            throw CommandFailure(.failure, "cannot write \(path.shown): \(error.errno)")
        }
    }
}

/// The file, open for reading through the page cache and past it. Any thread.
final class BenchTarget: Sendable {
    let size: Int
    /// False if the file system refuses O_DIRECT. Pages are then dropped before each read.
    let isDirect: Bool
    let cached, uncached: Descriptor

    init(_ file: BenchFile, largestBlock: Int) throws(CommandFailure) {
        let path = file.path
        cached = try CommandFailure.wrapping("cannot open", path, try Descriptor(path: path, flags: O_RDONLY))
        size = Int(try CommandFailure.wrapping("cannot examine", path, try cached.status().st_size))
        guard size >= largestBlock else {
            throw CommandFailure(.usage, "\(path.shown) has \(size) bytes, less than a block of \(largestBlock)")
        }
        let block = UnsafeMutableRawPointer.allocate(byteCount: 4096, alignment: 4096)
        defer { block.deallocate() }
        // Some file systems refuse O_DIRECT only when reading.
        let direct = try? Descriptor(path: path, flags: O_RDONLY | linux_O_DIRECT)
        isDirect = direct.map { pread($0.fd, block, 4096, 0) >= 0 } ?? false
        uncached = isDirect ? direct ?? cached : cached
    }

    /// Empties the file's page cache and turns read-ahead off.
    func prepare() {
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_DONTNEED)
        posix_fadvise(cached.fd, 0, 0, POSIX_FADV_RANDOM)
    }
}
