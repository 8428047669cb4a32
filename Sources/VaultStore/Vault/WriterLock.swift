internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
package import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// What keeps other machines, and other mounts of the store, out of a vault: a lock on `vaultfs.lock`, and a note in it of
/// who has it (FileFormat, The lock file). Any thread.
///
/// The flock on the root directory is this machine's alone: NFS and FUSE pass locks of files on, of directories none. An
/// open file description's lock (fcntl(2), F_OFD_SETLK), because it is of one kind with those that an NFS server takes for
/// its clients, and an flock is not.
package final class WriterLock: Sendable {
    struct State {
        /// Nil where it could not be opened again.
        var file: Descriptor?
        /// Written by `claim`.
        var note: WriterRecord?
        var isLost = false
        /// True if a former writer did not end properly, and its remains are not completed yet.
        var followsUncleanEnd = false
    }

    static let entry = Array("vaultfs.lock".utf8)
    /// Milliseconds for which a look at the lock is believed.
    private static let trust = 2000
    /// A last look that is too old at any time.
    private static let never = -trust
    /// Milliseconds after which a former holder on another machine has looked again, and found that it is none.
    private static let formerCheckInterval = 5000

    /// In the file while nobody writes the vault.
    private static let nobody = Array("\n".utf8)
    /// Content of the file after a writer that ended properly, but did not complete the remains of an earlier unclean
    /// end.
    private static let incomplete = Array("incomplete\n".utf8)
    /// That the name leads to another file than the one that is locked.
    private static let moved = StoreError.system(.staleNFSFileHandle)

    private let root: Descriptor
    /// Whether the store is a network's, so that a holder on another machine may not have seen our lock.
    private let isRemote: Bool
    let state: Mutex<State>
    /// CLOCK_BOOTTIME of the last look in milliseconds: a machine that slept has to look.
    let lastCheck = Atomic<Int>(never)
    /// Told once, when the vault has got another holder.
    package let onLoss = Mutex<(@Sendable () -> Void)?>(nil)

    private init(root: Descriptor, file: Descriptor, isRemote: Bool) {
        self.root = root
        self.isRemote = isRemote
        state = Mutex(State(file: file))
    }

    /// Takes the lock, tried again for up to `wait`.
    /// - Returns: nil where there is nothing to lock: for a reader no file, for anybody a local store without locks.
    /// - Throws: `EAGAIN` where another holds it all the while.
    /// - Parameter isRemote: nil: as the store says.
    static func take(
        root: Descriptor, _ sharing: VaultDirectory.Sharing, wait: Duration, isRemote: Bool? = nil
    ) throws(StoreError) -> WriterLock? {
        let isRemote = isRemote ?? NetworkStore.contains(root.fd)
        let deadline = ContinuousClock.now + wait
        while true {
            // Opened each time: the name may lead elsewhere by now.
            guard let file = try open(root, sharing) else { return nil }
            do throws(StoreError) {
                try lock(file, sharing == .exclusive ? F_WRLCK : F_RDLCK)
            } catch {
                // A store that several machines write to has to have locks.
                if error != .system(.wouldBlock), isRemote && sharing == .exclusive { throw error }
                if error != .system(.wouldBlock) { return nil }
                guard ContinuousClock.now < deadline else { throw error }
                usleep(100_000)
                continue
            }
            if try isFree(file, root: root) { return WriterLock(root: root, file: file, isRemote: isRemote) }
            guard ContinuousClock.now < deadline else { throw .system(.wouldBlock) }
            usleep(100_000)
        }
    }

    /// Whether what we have locked is what others lock, and no process of this machine has the vault by another mount of the
    /// store, which may pass on no locks: FUSE keeps them to itself.
    private static func isFree(_ file: Descriptor, root: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try readNote(inPlaceOf: file, root: root)?.isOfLivingOther != true
        } catch {
            if error == .system(.noSuchFileOrDirectory) || error == moved { return false }
            throw error
        }
    }

    /// - Returns: nil for a reader where there is no file, as in a vault that an older version made and nobody has written.
    private static func open(_ root: Descriptor, _ sharing: VaultDirectory.Sharing) throws(StoreError) -> Descriptor? {
        guard sharing == .exclusive else {
            do throws(StoreError) {
                return try regular(Descriptor(at: root.fd, entry, flags: O_RDONLY | O_NONBLOCK))
            } catch .system(.noSuchFileOrDirectory) { return nil }
        }
        return try makeFile(in: root)
    }

    /// Opens the file for writing, and makes it where it is absent.
    @discardableResult
    static func makeFile(in root: Descriptor) throws(StoreError) -> Descriptor {
        let file = try regular(Descriptor(at: root.fd, entry, flags: O_RDWR | O_CREAT | O_NONBLOCK, mode: 0o644))
        let (status, owner) = (try file.status(), try root.status())
        // What root's mount has made must not keep the vault's owner out.
        if geteuid() == 0, status.st_uid != owner.st_uid || status.st_gid != owner.st_gid {
            try retrying { fchown(file.fd, owner.st_uid, owner.st_gid) }
        }
        return file
    }

    private static func regular(_ file: Descriptor) throws(StoreError) -> Descriptor {
        let status = try file.status()
        guard status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1 else {
            throw .damaged("vaultfs.lock is not a regular file with one name")
        }
        return file
    }

    private static func lock(_ file: Descriptor, _ type: Int32) throws(StoreError) {
        do throws(StoreError) {
            try retrying { linux_lock_whole(file.fd, type) }
        } catch {
            throw error == .system(.permissionDenied) ? .system(.wouldBlock) : error
        }
    }

    /// Closing alone does not do: a child that another thread has just forked has the descriptor, and so the lock, until its
    /// exec(2).
    private static func drop(_ file: inout Descriptor?) {
        if let file { _ = linux_lock_whole(file.fd, F_UNLCK) }
        file = nil
    }

    /// Whose note is there, for a message.
    static func record(in root: Descriptor) -> WriterRecord? {
        content(in: root).flatMap { WriterRecord(parsing: $0) }
    }

    private static func content(in root: Descriptor) -> [UInt8]? {
        (try? Descriptor(at: root.fd, entry, flags: O_RDONLY | O_NONBLOCK)).flatMap { try? read($0) }
    }

    /// Returns true if the last writer did not end properly, or if an earlier one did not and its remains were not
    /// completed since. Means nothing while a writer has the vault, because that writer's note is in the file.
    static func isUnclean(_ root: Descriptor) -> Bool { content(in: root).map { isUnclean($0) } ?? false }

    /// Returns true unless the content is empty or a single LF. An empty file was just made. Only a writer that did
    /// not end properly leaves anything else.
    private static func isUnclean(_ content: [UInt8]) -> Bool { !content.isEmpty && content != nobody }

    /// The note in the file that the name leads to: opened anew, because a path is all that some FUSE file systems go by.
    /// - Throws: `moved` where it is not the one that we have locked.
    private static func readNote(inPlaceOf file: Descriptor, root: Descriptor) throws(StoreError) -> WriterRecord? {
        WriterRecord(parsing: try read(inPlaceOf: file, root: root))
    }

    /// Returns the bytes of that file.
    private static func read(inPlaceOf file: Descriptor, root: Descriptor) throws(StoreError) -> [UInt8] {
        let named = try Descriptor(at: root.fd, entry, flags: O_RDONLY | O_NONBLOCK)
        let (status, locked) = (try named.status(), try file.status())
        guard status.st_dev == locked.st_dev, status.st_ino == locked.st_ino else { throw moved }
        return try read(named)
    }

    /// In place: a disk that is full has no room for a file that was emptied, and a vault on it is to be mounted so that
    /// something can be removed.
    private static func put(_ bytes: [UInt8], into file: Descriptor) throws(StoreError) {
        try bytes.withBytes { (bytes) throws(StoreError) in try file.write(bytes, at: 0) }
        try file.truncate(to: UInt64(bytes.count))
    }

    private static func read(_ file: Descriptor) throws(StoreError) -> [UInt8] {
        // Not as the page cache remembers it.
        posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED)
        var bytes = [UInt8](repeating: 0, count: WriterRecord.maximumSize + 1)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) in try file.read(at: 0, into: buffer) }
        return Array(bytes[..<count])
    }

    /// Says that this process writes from now on; once. Where a machine that has not answered for itself had the vault, waits
    /// until it has found that out. The first change looks whether another has done the same at this moment.
    /// - Throws: `EAGAIN` where another has got the lock, or is there by another way, since `take`; what the store says.
    package func claim() throws(StoreError) { try claim(waitMilliseconds: Self.formerCheckInterval) }

    /// The same.
    /// - Parameter waitMilliseconds: how long to wait for a former writer.
    func claim(waitMilliseconds: Int) throws(StoreError) {
        let former = try state.withLock { (state) throws(StoreError) -> WriterRecord? in
            guard let file = state.file, state.note == nil else { return nil }
            // A person may have been asked meanwhile, or the machine have slept.
            try Self.lock(file, F_WRLCK)
            let content = try Self.read(inPlaceOf: file, root: root)
            let former = WriterRecord(parsing: content)
            if former?.isOfLivingOther == true { throw .system(.wouldBlock) }
            state.followsUncleanEnd = Self.isUnclean(content)
            let note = try WriterRecord.own()
            try Self.put(note.bytes, into: file)
            try file.synchronize(dataOnly: false)
            state.note = note
            return former
        }
        guard let former, former.isOfLivingOther == nil else { return }
        // On a local store another machine's is what a crash has left; a process of another container may see our note only.
        if isRemote || former.isOfThisMachine { usleep(useconds_t(waitMilliseconds) * 1000) }
    }

    /// Before the vault is changed: makes sure that nobody else has taken it over, by a look that is at most 2 s old. On a
    /// local store, too: the other may have come by a FUSE mount of it. Waits for the store as the change itself would.
    /// - Throws: `EIO` once another has, and after the release; what the store says where it does not tell.
    package func verify() throws(StoreError) {
        let now = Self.bootMilliseconds()
        if now - lastCheck.load(ordering: .acquiring) < Self.trust { return }
        try state.withLock { (state) throws(StoreError) in
            guard !state.isLost else { throw .system(.ioError) }
            guard try isHeld(&state) else {
                state.isLost = true
                onLoss.withLock { $0 }?()
                throw .system(.ioError)
            }
            lastCheck.store(now, ordering: .releasing)
        }
    }

    /// Takes the lock that we hold once more: the server says whether we can have it, and the note whether anybody else had
    /// it meanwhile.
    private func isHeld(_ state: inout State) throws(StoreError) -> Bool {
        guard let note = state.note else { throw .system(.ioError) }
        if let file = state.file {
            do throws(StoreError) { return try isHeld(file, by: note) } catch {}
        }
        // A descriptor whose lock was lost serves no more (NFS: EIO, GlusterFS: EBADFD), nor does one that the name has left.
        // Its lock, if there is one, has to go before another's is taken.
        Self.drop(&state.file)
        do throws(StoreError) {
            // Not made: another may have made it, written, and removed it.
            let fresh = try Self.regular(Descriptor(at: root.fd, Self.entry, flags: O_RDWR | O_NONBLOCK))
            state.file = fresh
            return try isHeld(fresh, by: note)
        } catch .system(.noSuchFileOrDirectory) { return false }
    }

    private func isHeld(_ file: Descriptor, by note: WriterRecord) throws(StoreError) -> Bool {
        do throws(StoreError) { try Self.lock(file, F_WRLCK) } catch {
            if error == .system(.wouldBlock) { return false }
            throw error
        }
        return try Self.readNote(inPlaceOf: file, root: root) == note
    }

    /// Whether another was found to have the vault, or the file is gone.
    package var isLost: Bool { state.withLock { $0.isLost } }

    /// True if a former writer did not end properly, and its remains are not completed yet. Nil before `claim`.
    var followsUncleanEnd: Bool? { state.withLock { $0.note == nil ? nil : $0.followsUncleanEnd } }

    /// Notes that all remains of an unclean end are completed, durably.
    func noteCompletion() {
        state.withLock { $0.followsUncleanEnd = false }
    }

    /// The vault is as whole as it gets: the next machine need not wait, once what was written here has left for the
    /// server. Another's note stays.
    package func release() {
        state.withLock { state in
            if let note = state.note, !state.isLost, let file = state.file, (try? isHeld(file, by: note)) == true,
                !isRemote || linux_syncfs(root.fd) == 0
            {
                try? Self.put(state.followsUncleanEnd ? Self.incomplete : Self.nobody, into: file)
            }
            state.note = nil
            Self.drop(&state.file)
            lastCheck.store(Self.never, ordering: .releasing)
        }
    }

    private static func bootMilliseconds() -> Int {
        var now = timespec()
        clock_gettime(CLOCK_BOOTTIME, &now)
        return now.tv_sec * 1000 + now.tv_nsec / 1_000_000
    }
}
