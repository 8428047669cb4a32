internal import BackingStore
internal import Glibc
internal import MountedFileSystem
internal import Synchronization
internal import ViewFormats

/// A file, directory or link of a view that the kernel knows. Any thread.
final class ViewNode: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode; what is added here is under a mutex.

    /// What is known of a file's content.
    struct Known {
        var stamp: SourceStamp
        var plan: FilePlan
        /// Of what is cached of it.
        var token: UInt64
        /// Bytes of plaintext.
        var length: UInt64
        /// Whether the kernel may have pages of it: false where only its length was looked at.
        var wasOpened: Bool
        /// While a handle holds it.
        weak var file: ViewFile?
    }

    /// Of a directory: whether a listing has come to its end.
    let wasListed = Atomic<Bool>(false)
    let known = Mutex<Known?>(nil)
    /// The size that the kernel was told last.
    let toldSize = Mutex<Int64?>(nil)

    required init(key: NodeKey, kind: mode_t) {
        super.init(key: key, kind: kind)
    }

    /// The file, where it is open.
    var openFile: ViewFile? { known.withLock { $0?.file } }
}

/// What tells that a source file's content is no longer what it was: whoever writes to a file changes its times.
struct SourceStamp: Equatable, Sendable {
    private let size: Int64
    private let modified: [Int]

    init(_ status: stat) {
        size = Int64(status.st_size)
        modified = [
            status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec, status.st_ctim.tv_nsec,
        ]
    }
}
