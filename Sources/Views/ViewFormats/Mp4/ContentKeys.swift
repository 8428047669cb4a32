internal import Synchronization
internal import VaultCrypto

/// The keys of an open MP4 file, by the identifiers in its boxes. Fragments can need keys unknown at the open. These
/// are fetched in the background. Any thread.
final class ContentKeys: Sendable {
    /// The keys' names apart from their identifiers.
    struct Naming: Equatable, Sendable {
        /// The URI in the playlist, if there is one.
        var uri: [UInt8]?
        /// The only key that the URI can mean; nil if there are several, because packagers write the same URI for all.
        var uriKey: KeyID?
        /// The directory of the playlist or the file, relative to the source.
        var directory: [UInt8]
        /// The keys of `--key KID=FILE`.
        var given: Set<KeyID>

        func name(of key: KeyID) -> KeyName {
            if given.contains(key) { return .given(key) }
            return .content(key, uri: uri, isOfURI: uri != nil && key == uriKey, directory: directory)
        }
    }

    private typealias Known = (id: KeyID, name: KeyName, key: CbcKey)

    private struct State {
        /// Keys unknown at the open.
        var keys: [Known] = []
        /// The reasons of failed fetches. Nil while one is running.
        var failures: [KeyID: String?] = [:]

        func key(_ id: KeyID) -> CbcKey? { keys.first { $0.id == id }?.key }
    }

    private let naming: Naming
    private let store: KeyStore?
    private let waits: Bool
    /// The keys known at the open: one or two, which a search finds sooner than a dictionary, and without a lock.
    private let opened: [Known]
    private let state = Mutex(State())

    /// - Parameters:
    ///   - keys: known at the open.
    ///   - store: has or fetches the others.
    ///   - waits: true if a read may wait for a key, as in an export.
    init(_ keys: [(name: KeyName, key: CbcKey)], _ naming: Naming, from store: KeyStore?, waits: Bool) {
        self.naming = naming
        self.store = store
        self.waits = waits
        opened = keys.compactMap { name, key in
            if case .content(let id, _, _, _) = name { (id, name, key) } else { nil }
        }
    }

    var all: [(name: KeyName, key: CbcKey)] { (opened + state.withLock { $0.keys }).map { ($0.name, $0.key) } }

    /// Returns a key. Does not block, unless reads may wait.
    /// - Throws: `.noKey` if it is not in memory. It is then fetched, so a later read can succeed.
    func key(_ id: KeyID) throws(ViewError) -> CbcKey {
        for known in opened where known.id == id { return known.key }
        if let known = state.withLock({ $0.key(id) }) { return known }
        let name = naming.name(of: id)
        if let material = try waits ? store?.fetch(name) : store?.find(name) {
            let own = material.key.subrange(0..<material.key.count)
            let key = try ViewError.ofCrypto(CbcKey(own))
            return state.withLock { state in
                state.failures[id] = nil
                if let known = state.key(id) { return known }
                state.keys.append((id, name, key))
                return key
            }
        }
        let failure = state.withLock { state in
            let failure = state.failures[id]
            state.failures[id] = .some(nil)
            return failure
        }
        // Fetch the key, unless a fetch is running.
        if failure != .some(nil) {
            let accepted = store?.prefetch([name]) { [weak self] _, outcome in
                guard case .failure(.noKey(let text)) = outcome else { return }
                self?.state.withLock { $0.failures[id] = text }
            }
            // The store is locked, or too many fetches wait.
            if accepted != 1 { state.withLock { _ = $0.failures.removeValue(forKey: id) } }
        }
        throw .noKey((failure ?? nil) ?? "no key for \(id.text) yet: it is fetched in the background")
    }
}
