internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import ViewFormats

/// One source file, opened: all handles of the same content share it. Any thread.
final class ViewFile: Sendable {
    let source: SourceFile
    let content: OpenContent
    let keyNames: [KeyName]
    private let restoring = Mutex(())

    init(_ content: OpenContent, of source: SourceFile, keyNames: [KeyName]) {
        self.source = source
        self.content = content
        self.keyNames = keyNames
    }

    var length: UInt64 { content.length }

    // MARK: A lock

    private var keys: [CbcKey] {
        switch content {
        case .chained(let file): file.keys
        case .text: []
        }
    }

    var hasKeys: Bool { !keys.contains(where: \.isForgotten) }

    func forgetKeys() {
        for key in keys { key.forget() }
    }

    /// Puts the keys in place again that a lock has wiped, where they are in memory. Within a request, or by the lock controller:
    /// a lock that begins meanwhile is to wipe them again.
    func restoreKeys(from store: KeyStore) {
        // Several may read at once.
        restoring.withLock { _ in
            for (key, name) in zip(keys, keyNames) where key.isForgotten {
                // Another key is for who opens the file anew.
                guard let material = store.find(name), let fresh = try? CbcKey(material.key) else { continue }
                _ = key.refill(from: fresh)
            }
        }
    }
}

/// What open(2) gave a program. Any thread.
package final class ViewHandle: Sendable {
    let node: ViewNode
    let caching: PageCaching
    /// Of the content that was opened.
    private let token: UInt64
    /// Whether the kernel is known to have dropped the pages that it had before.
    private let isSettled: Atomic<Bool>

    /// - Parameter node: that has a file open for this handle.
    init(node: ViewNode, token: UInt64, caching: PageCaching) {
        self.node = node
        self.token = token
        self.caching = caching
        isSettled = Atomic(caching == .keep)
    }

    /// A read has come: the open is over.
    @inline(__always)
    func settle() {
        if isSettled.load(ordering: .relaxed) { return }
        isSettled.store(true, ordering: .relaxed)
        node.hasDroppedPages(for: token)
    }

    var file: ViewFile {
        guard let file = node.openFile else { preconditionFailure("internal error: a handle without a file") }
        return file
    }
}

/// What opendir(3) gave a program: a place in a directory. Any thread.
package final class ViewDirectoryHandle: Sendable {
    let node: ViewNode
    let reader: Mutex<DirectoryReader>

    /// - Parameter descriptor: open for reading, for this handle alone.
    init(node: ViewNode, descriptor: Descriptor) {
        self.node = node
        reader = Mutex(DirectoryReader(descriptor))
    }
}
