package import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
package import ViewFormats

/// An open source file. All handles of the same content share it. Any thread.
final class ViewFile: Sendable {
    let source: SourceFile
    let content: OpenContent
    private let openedKeyNames: [KeyName]
    private let restoring = Mutex(())

    init(_ content: OpenContent, of source: SourceFile, keyNames: [KeyName]) {
        (self.source, self.content, openedKeyNames) = (source, content, keyNames)
    }

    var length: UInt64 { content.length }

    private var keys: [(name: KeyName, key: CbcKey)] {
        switch content {
        case .chained(let file): file.keys(named: openedKeyNames)
        case .text: []
        }
    }

    var keyNames: [KeyName] { keys.map(\.name) }

    /// False after a lock has wiped them.
    var hasKeys: Bool { !keys.contains { $0.key.isForgotten } }

    func forgetKeys() {
        for (_, key) in keys { key.forget() }
    }

    /// Restores keys that a lock has wiped, if they are in memory. Call this within a request or from the lock
    /// controller, so that a lock that begins meanwhile wipes them again.
    func restoreKeys(from store: KeyStore) {
        // Only one thread restores, because several can read at once.
        restoring.withLock { _ in
            for (name, key) in keys where key.isForgotten {
                // A changed key is for a new open only.
                guard let material = store.find(name), let fresh = try? CbcKey(material.key) else { continue }
                _ = key.refill(from: fresh)
            }
        }
    }
}

/// The result of open(2): a handle of a node's open file. Any thread.
package final class ViewHandle: OpenFile {
    package let sequence = ReadSequence()
    let node: ViewNode
    let caching: PageCaching
    /// The token of the content at the open.
    private let token: UInt64
    /// True once the kernel has dropped the pages of earlier content.
    private let hasDroppedPages: Atomic<Bool>

    /// - Parameter node: has an open file for this handle.
    init(node: ViewNode, token: UInt64, caching: PageCaching) {
        self.node = node
        self.token = token
        self.caching = caching
        hasDroppedPages = Atomic(caching == .keep)
    }

    /// Records the end of the open. Call this at each read, because the kernel reads only after that.
    @inline(__always)
    func confirmDroppedPages() {
        if hasDroppedPages.load(ordering: .relaxed) { return }
        hasDroppedPages.store(true, ordering: .relaxed)
        node.hasDroppedPages(for: token)
    }

    package var content: OpenContent { file.content }

    var file: ViewFile {
        guard let file = node.openFile else { preconditionFailure("internal error: a handle without a file") }
        return file
    }
}

/// The result of opendir(3). Any thread.
package final class ViewDirectoryHandle: Sendable {
    let node: ViewNode
    let reader: Mutex<DirectoryReader>

    /// - Parameter descriptor: open for reading, used by this handle only.
    init(node: ViewNode, descriptor: Descriptor) {
        self.node = node
        reader = Mutex(DirectoryReader(descriptor))
    }
}
