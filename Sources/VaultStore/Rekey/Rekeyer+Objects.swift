internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// Files and symbolic links of the previous epoch that have several names.
    struct Links {
        /// The paths of those that have several in the vault, by what they are on disk.
        var sets: [FileIdentity: [[[UInt8]]]] = [:]
        /// Those that have one in the vault.
        var alone: Set<FileIdentity> = []
    }

    /// The names of one that were seen, and how many there are.
    private struct SeenNames {
        var paths: [[[UInt8]]] = []
        var count = 0
    }

    private enum Work: Sendable {
        /// Finds what there is to do.
        case walk
        case object(RekeyWalk.Object)
    }

    /// Removes what operations cut short have left, and finds out what there is to do.
    func lookAround() throws(StoreError) -> Links {
        var survey = RekeySurvey()
        var seen: [FileIdentity: SeenNames] = [:]
        try walk(
            enter: { [self] (place) throws(StoreError) in
                try shared.check()
                try place.sweep()
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
                    let identity = FileIdentity(object.status)
                    seen[identity, default: SeenNames()].paths.append(object.path)
                    seen[identity]?.count = Int(object.status.st_nlink)
                }
            })
        self.survey = survey
        return links(seen)
    }

    /// Where something could not be looked at, a name may be there that must not be parted from the others: what has names
    /// that were not seen is left for the next run.
    private func links(_ seen: [FileIdentity: SeenNames]) -> Links {
        let sawAll = totals.problems == 0
        var links = Links()
        for (identity, names) in seen {
            if names.paths.count < names.count {
                guard sawAll else {
                    shared.problem(
                        shownPath(names.paths[0]),
                        "\(names.count - names.paths.count) of its \(names.count) names may be in what could not be read"
                    )
                    continue
                }
                shared.count { $0.elsewhere += 1 }
            }
            if names.paths.count > 1 { links.sets[identity] = names.paths } else { links.alone.insert(identity) }
        }
        return links
    }

    /// What has one name, or one in this vault: several at once.
    func rekeyFiles(_ links: Links, _ workspaces: [Workspace]) throws(StoreError) {
        let pool = WorkPool<Work>()
        let worker = RekeyWorker(shared: shared, objects: objects, alone: links.alone)
        let (notes, shared) = (self.notes, self.shared)
        let bodies = workspaces.map { workspace -> @Sendable (Work) -> Void in
            // Each is handed to one thread, and used by no other.
            nonisolated(unsafe) let workspace = workspace
            return { (work) in
                switch work {
                case .object(let object): worker.rekey(object, workspace)
                case .walk:
                    let walk = RekeyWalk(
                        notes: notes,
                        visit: { (object) throws(StoreError) in
                            try shared.check()
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
    func rekeyLinkSets(_ links: Links, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for paths in links.sets.values {
            try shared.check()
            onProgress(totals)
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                if error.endsRekey { throw error }
                // With a step half done none may be begun.
                if try RekeyIntentFile.isThere(in: store.root) { throw error }
                shared.take(error, about: shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[[UInt8]]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let place = try RekeyPlace.at(paths[0].dropLast(), notes)
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
                try objects.makeFile(temporary, in: store.root, from: reader, of: object, workspace) {
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

    /// With the backing entries where the directory cannot be opened.
    private func shownPath(_ path: [[UInt8]]) -> [UInt8] {
        guard let entry = path.last,
            let place = try? RekeyPlace.at(path.dropLast(), notes)
        else { return Array(path.joined(separator: [UInt8(ascii: "/")])) }
        return place.shownPath(of: entry)
    }
}
