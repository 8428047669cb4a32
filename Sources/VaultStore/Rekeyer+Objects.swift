internal import BackingStore
internal import CLinux
internal import Glibc
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// Files and symbolic links of the previous epoch that have several names in the vault, by what they are on disk.
    typealias LinkSets = [Verifier.FileIdentity: [[[UInt8]]]]

    private enum Work: Sendable {
        /// Finds what there is to do.
        case walk
        case object(RekeyWalk.Object)
    }

    /// Removes what operations cut short have left, and finds out what there is to do.
    func lookAround() throws(StoreError) -> LinkSets {
        var survey = RekeySurvey()
        var sets: LinkSets = [:]
        try walk(
            enter: { [self] (place) throws(StoreError) in
                try shared.check()
                // Not in what is not the vault's: another vault may lie in it.
                guard place.record != nil else { return }
                try store.admitChange()
                try OpenDirectory.sweepLeftovers(of: place.descriptor, keeping: nil, includingSidecars: false)
            },
            visit: { [self] (object) throws(StoreError) in
                let isFile: Bool
                switch try objects.standing(of: object) {
                case .previousFile: isFile = true
                case .previousLink: isFile = false
                case .current, .damaged, .foreign: return
                }
                if isFile {
                    survey.files += 1
                    // A hole is no work.
                    survey.bytes += UInt64(max(0, min(object.status.st_size, object.status.st_blocks * 512)))
                }
                if object.status.st_nlink > 1 {
                    sets[Verifier.FileIdentity(object.status), default: []].append(object.path)
                }
            })
        self.survey = survey
        return sets.filter { $0.value.count > 1 }
    }

    /// What has one name, or one in this vault: several at once.
    func rekeyFiles(except sets: LinkSets, _ workspaces: [Workspace]) throws(StoreError) {
        let pool = WorkPool<Work>()
        let skipped = Set(sets.keys)
        let worker = RekeyWorker(shared: shared, objects: objects)
        let (store, shared) = (self.store, self.shared)
        let bodies = workspaces.map { workspace -> @Sendable (Work) -> Void in
            // Each is handed to one thread, and used by no other.
            nonisolated(unsafe) let workspace = workspace
            return { (work) in
                switch work {
                case .object(let object): worker.rekey(object, workspace)
                case .walk:
                    let walk = RekeyWalk(
                        root: store.root, keyRing: store.keyRing,
                        visit: { (object) throws(StoreError) in
                            try shared.check()
                            if skipped.contains(Verifier.FileIdentity(object.status)) { return }
                            if !pool.offer(.object(object)) { worker.rekey(object, workspace) }
                        },
                        failed: shared.walkFailed)
                    do throws(StoreError) { try walk.run() } catch { shared.take(error, about: []) }
                }
            }
        }
        try pool.run(.walk, bodies) { onProgress(totals) }
        try shared.check()
    }

    /// One after the other: what has several names is to have them all the while.
    func rekeyLinkSets(_ sets: LinkSets, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for paths in sets.values {
            try shared.check()
            onProgress(totals)
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                if error.endsRekey { throw error }
                shared.take(error, about: try shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[[UInt8]]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let place = try place(at: paths[0].dropLast())
        let pin = try Descriptor(at: place.descriptor.fd, entry, flags: linux_O_PATH)
        let object = RekeyWalk.Object(entry: entry, place: place, pin: pin, status: try pin.status())
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        var isFile = false
        let old: RekeyIntent.Identity
        switch try objects.standing(of: object) {
        case .current, .foreign, .damaged: return
        case .previousFile(let reader, _):
            isFile = true
            let shared = self.shared
            old = .file(
                try objects.makeFile(temporary, in: store.root, from: reader, object.status, workspace) {
                    (count) throws(StoreError) in
                    shared.count { $0.bytes += count }
                    try shared.check()
                })
        case .previousLink(let stored, let target, let protectionClass):
            old = .link(stored)
            try objects.makeLink(temporary, in: store.root, to: target, protectionClass, from: pin, object.status)
        }
        do throws(StoreError) {
            try intents.carryOut(.links(RekeyIntent.Links(old: old, temporary: temporary, paths: paths)))
        } catch {
            // What was begun needs it.
            if try !RekeyIntentFile.isThere(in: store.root) {
                _ = withCString(temporary) { unlinkat(store.root.fd, $0, 0) }
            }
            throw error
        }
        if case .file(let id) = old { store.journal.forget(file: id) }
        shared.count { if isFile { $0.files += 1 } else { $0.links += 1 } }
    }

    private func place(at path: ArraySlice<[UInt8]>) throws(StoreError) -> RekeyPlace {
        var place = try RekeyPlace.root(store.root, keyRing: store.keyRing)
        for entry in path { place = try place.inner(entry, keyRing: store.keyRing) }
        return place
    }

    private func shownPath(_ path: [[UInt8]]) throws(StoreError) -> [UInt8] {
        guard let entry = path.last else { return [] }
        return try place(at: path.dropLast()).shownPath(of: entry)
    }
}
