internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultStore

/// The file that is read: one that was there, or one made in a directory and removed again. Any thread.
final class BenchFile: Sendable {
    let path: FilePath
    let isTemporary: Bool
    private let isRemoved = Atomic<Bool>(false)

    init(path: FilePath) throws(CommandFailure) {
        var status = stat()
        guard path.withPlatformString({ stat($0, &status) }) == 0 else {
            throw CommandFailure(.failure, "cannot look at \(path.shown): \(currentErrno())")
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

    /// Removes the file if it was made here. Again: nothing.
    func remove() {
        guard isTemporary, !isRemoved.exchange(true, ordering: .relaxed) else { return }
        _ = path.withPlatformString { unlink($0) }
    }

    /// Makes the file, of random bytes, durably.
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
                // Each block different, or a store that finds duplicates would have an easy time.
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
