internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultStore

/// The completion of files without a header and of directories without a record after an unclean end (`Completion`).
extension VaultFileSystem {
    /// Maximum number of walks through the tree. A rename during a walk makes another one necessary.
    private static let mostWalks = 3

    /// Completes a file or directory before its open, if it lacks its header or record.
    func complete(_ node: Node, _ pin: Descriptor) throws(StoreError) {
        guard let completion = store(of: node).completion, completion.isActive,
            try Completion.isIncomplete(pin), let name = nodes.name(of: node)
        else { return }
        let parentClass = try directory(name.parent).protectionClass
        try completion.complete(pin, class: parentClass, shownPath: nodes.storedPath(of: node), in: store)
    }

    /// Runs `body`, a rename of `objects`. Counts it, because a walk may miss an incomplete object or a directory that
    /// moves.
    func countMove<Result>(
        _ objects: @autoclosure () throws(StoreError) -> [stat], _ body: () throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        guard let completion = store.completion, try objects().contains(where: Self.mayBeIncomplete) else {
            return try body()
        }
        return try completion.countMove(body)
    }

    /// Completes everything in the vault, pausing while the vault is locked. The body of a thread.
    func completeEverything() {
        guard let completion = store.completion, completion.begin() else { return }
        defer { completion.end() }
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        for _ in 0..<Self.mostWalks {
            let moves = completion.moves
            guard walk(completion, inFlight) else { return }
            if completion.finish(ifStill: moves) { return }
        }
    }

    /// Walks through the tree once. Returns false if it was stopped or failed. The next mount then starts again.
    private func walk(_ completion: Completion, _ inFlight: LockGate.InFlight) -> Bool {
        guard let root = try? store.root.openedForReading() else { return false }
        var walk = BackingWalk(root)
        var isComplete = true
        var found: BackingWalk<Descriptor>.Found?
        var isPausing = false
        while true {
            let goesOn = completion.wait {
                defer { isPausing = false }
                return isPausing || gate.state != .unlocked
            }
            guard goesOn else { return false }
            // The walk counts as a request here, so a lock waits for it before it wipes keys.
            gate.enter(inFlight)
            defer { gate.leave(inFlight) }
            guard gate.state == .unlocked else { continue }
            let next =
                found
                ?? walk.nextEntry { entry, directory, error in
                    if let entry, isIgnored(entry, directory, error) { return }
                    isComplete = false
                }
            guard let object = next else { return isComplete }
            do throws(StoreError) {
                try complete(object, completion, walk)
                found = nil
            } catch {
                // Try the same object again once the keys are back.
                isPausing = error == .locked
                found = isPausing ? object : nil
                if !isPausing && !isIgnored(object.entry, object.directory, error) { isComplete = false }
            }
        }
    }

    private func complete(
        _ object: BackingWalk<Descriptor>.Found, _ completion: Completion, _ walk: BackingWalk<Descriptor>
    ) throws(StoreError) {
        guard Self.mayBeIncomplete(object.status) else { return }
        let isDone = try completion.complete(
            object.entry, in: object.directory, shownPath: walk.path(of: object.entry), in: store)
        if !isDone, object.status.st_mode & S_IFMT == S_IFREG {
            do throws(StoreError) {
                let isCut = try completion.proveTail(object.entry, in: object.directory, in: store)
                if isCut, let node = nodes.find(object.status) { invalidateSize(of: node) }
            } catch .damaged {}
        }
    }

    private static func mayBeIncomplete(_ status: stat) -> Bool {
        [S_IFDIR, S_IFREG].contains(status.st_mode & S_IFMT)
    }

    /// Returns true if a failure to look at an entry does not matter: the entry no longer exists, is not a name of the
    /// vault, or its owner has denied themselves access, which would keep the walk of every mount from finishing.
    private func isIgnored(_ entry: Component, _ directory: Descriptor, _ error: StoreError) -> Bool {
        if [.system(.noSuchFileOrDirectory), .system(.permissionDenied), .system(.notPermitted)].contains(error) {
            return true
        }
        return (try? Completion.protectionClass(of: directory, naming: entry, store.keyRing) == nil) ?? false
    }
}
