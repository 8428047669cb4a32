internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Transfer

/// Writes one file to standard output. One thread.
struct ExportedStream<System: FileSystem> {
    /// Bytes read and written at a time.
    private static var pieceSize: Int { 1 << 20 }

    let tree: FileSystemTree<System>
    /// The file's path, for messages.
    let source: String
    /// True if the right to open the vault has ended.
    let hasEnded: @Sendable () -> Bool

    /// Writes only verified bytes, and ends at the first damaged one.
    /// - Throws: code `damageFound`, also if `isLogDamaged` returns true in the end.
    func write(
        _ from: TransferTarget<FileSystemTree<System>>, _ workspace: System.Workspace, isLogDamaged: () -> Bool
    ) throws {
        guard let name = from.name, let item = try tree.find(name, in: from.directory),
            try tree.status(of: item).st_mode & S_IFMT == S_IFREG
        else {
            throw CommandFailure(.usage, "\(source) is no regular file: only one can go to standard output")
        }
        var offset: UInt64 = 0
        do throws(StoreError) {
            let content = try tree.open(item, workspace)
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceSize, alignment: 16)
            defer {
                buffer.initializeMemory(as: UInt8.self, repeating: 0)
                buffer.deallocate()
            }
            while !hasEnded() {
                let count = try tree.read(content, at: offset, into: buffer, workspace)
                if count == 0 { break }
                try writeAll(Array(buffer[..<count]), to: STDOUT_FILENO)
                offset += UInt64(count)
            }
        } catch {
            guard case .damaged(let reason) = error else {
                throw CommandFailure(.failure, "\(source): after \(offset) bytes: \(error.reason)")
            }
            throw CommandFailure(
                .damageFound, "\(source): damaged after \(offset) bytes, which were written: \(reason)")
        }
        if hasEnded() { throw CommandFailure(.wrongSecret, "\(source): the slot expired after \(offset) bytes") }
        if isLogDamaged() {
            throw CommandFailure(.damageFound, "\(source): vaultfs.log is damaged: the last changes may be missing")
        }
    }
}
