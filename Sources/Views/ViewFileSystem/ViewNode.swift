internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import ViewFormats

/// A file, directory or link of a view, known to the kernel. Any thread.
final class ViewNode: TableNode, @unchecked Sendable {
    // @unchecked: as TableNode. Its own state is under mutexes.

    /// The last known content of a file.
    struct Known {
        var stamp: FileStamp
        var plan: FilePlan.Identity
        /// The token of the content in the block cache.
        var token: UInt64
        /// Length of the plaintext in bytes.
        var length: UInt64
    }

    private struct Content {
        var known: Known?
        /// The open file, while there are handles. All handles share it, as they share the kernel's pages. So a file
        /// rewritten in place changes for all of them at the next open.
        var file: ViewFile?
        var handles = 0
        /// The token of the content of all pages in the kernel. Nil if some pages may be of other content.
        var pages: UInt64?

        func caching(_ token: UInt64) -> PageCaching { pages == token ? .keep : .drop }
    }

    /// True after a directory's listing has reached its end.
    let wasListed = Atomic<Bool>(false)
    private let content = Mutex(Content())
    /// The last size that the kernel has received.
    let reportedSize = Mutex<Int64?>(nil)

    /// The open file; nil without handles.
    var openFile: ViewFile? { content.withLock { $0.file } }

    var known: Known? { content.withLock { $0.known } }

    /// Records content found without an open. The content of open handles does not change.
    func remember(_ known: Known) { content.withLock { if $0.handles == 0 { $0.known = known } } }

    /// Adds a handle to the open file. Returns nil without one, after the loss of its keys, or for other content.
    func reopen(_ stamp: FileStamp, _ plan: FilePlan) -> (file: ViewFile, token: UInt64, caching: PageCaching)? {
        content.withLock { content in
            guard let file = content.file, file.hasKeys, let known = content.known, known.stamp == stamp,
                known.plan == plan.identity
            else { return nil }
            content.handles += 1
            return (file, known.token, content.caching(known.token))
        }
    }

    /// Adds a handle, and makes this the file of all handles. Returns `.keep` if the kernel's pages are of the content.
    func open(_ file: ViewFile, _ known: Known) -> PageCaching {
        content.withLock { content in
            content.handles += 1
            (content.file, content.known) = (file, known)
            let caching = content.caching(known.token)
            if caching == .drop { content.pages = nil }
            return caching
        }
    }

    /// Records that the kernel has dropped its pages for a handle of this content, as it does on receiving our reply.
    /// Does nothing if another open has changed the content meanwhile.
    func hasDroppedPages(for token: UInt64) { content.withLock { if $0.known?.token == token { $0.pages = token } } }

    func release() {
        content.withLock { content in
            content.handles -= 1
            if content.handles == 0 { content.file = nil }
        }
    }
}
