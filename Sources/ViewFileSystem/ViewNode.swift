internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import ViewFormats

/// A file, directory or link of a view that the kernel knows. Any thread.
final class ViewNode: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode; what is added here is under a mutex.

    /// What was found of a file's content last.
    struct Known {
        var stamp: FileStamp
        var plan: FilePlan
        /// Of what is cached of it.
        var token: UInt64
        /// Bytes of plaintext.
        var length: UInt64
    }

    private struct Content {
        var known: Known?
        /// While handles are open. All of them share it, as they share the kernel's pages: a file that is written anew in
        /// place is another for all from the next open on.
        var file: ViewFile?
        var handles = 0
        /// The content that all of the kernel's pages are of; nil: some may be of another.
        var pages: UInt64?

        func caching(_ token: UInt64) -> PageCaching { pages == token ? .keep : .drop }
    }

    /// Of a directory: whether a listing has come to its end.
    let wasListed = Atomic<Bool>(false)
    private let content = Mutex(Content())
    /// The size that the kernel was told last.
    let toldSize = Mutex<Int64?>(nil)

    required init(key: FileIdentity, kind: mode_t) {
        super.init(key: key, kind: kind)
    }

    /// The file, where it is open.
    var openFile: ViewFile? { content.withLock { $0.file } }

    var known: Known? { content.withLock { $0.known } }

    /// Takes note of what was found without an open. What handles have open stays what it is.
    func remember(_ known: Known) {
        content.withLock { if $0.handles == 0 { $0.known = known } }
    }

    /// One handle more of the file that is open, if it is still that, and has its keys.
    func reopen(_ stamp: FileStamp, _ plan: FilePlan) -> (file: ViewFile, token: UInt64, caching: PageCaching)? {
        content.withLock { content in
            guard let file = content.file, file.hasKeys, let known = content.known, known.stamp == stamp,
                known.plan.isSame(as: plan)
            else { return nil }
            content.handles += 1
            return (file, known.token, content.caching(known.token))
        }
    }

    /// One handle more, and for all of them this file. Returns whether the kernel's pages are of it.
    func open(_ file: ViewFile, _ known: Known) -> PageCaching {
        content.withLock { content in
            content.handles += 1
            (content.file, content.known) = (file, known)
            let caching = content.caching(known.token)
            if caching == .drop { content.pages = nil }
            return caching
        }
    }

    /// The kernel has dropped its pages for a handle of this content: it does that when it has our answer, and others may
    /// be opening the file meanwhile.
    func hasDroppedPages(for token: UInt64) {
        content.withLock { if $0.known?.token == token { $0.pages = token } }
    }

    func release() {
        content.withLock { content in
            content.handles -= 1
            if content.handles == 0 { content.file = nil }
        }
    }
}
