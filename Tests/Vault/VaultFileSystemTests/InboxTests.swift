import CLinux
import FileSystem
import Glibc
import LinuxSystem
import Locking
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// Directories of class inbox while locked (Manual/Locking.md, "An inbox").
@Suite(.timeLimit(.minutes(60))) struct InboxTests {
    private let setup: LockSetup
    private let inbox: NodeID
    private var vault: MountedVault { setup.vault }
    private var system: VaultFileSystem { setup.vault.system }

    init() throws {
        setup = try LockSetup()
        inbox = try setup.vault.directory("inbox")
        for id in [NodeID.root, inbox] { try Self.set(id, "inbox", setup.vault.system) }
    }

    private static func set(_ id: NodeID, _ value: String, _ system: VaultFileSystem) throws {
        try system.setAttribute(id, ascii("user.vaultfs.class"), value: ascii(value), flags: 0)
    }

    private func lock(forgets: Bool) throws {
        if forgets { _ = try setup.lockForgetting() } else { #expect(try setup.lock() == false) }
    }

    private func unlock() throws {
        let key: LockController.SecretSource = { [masterKey = setup.vault.masterKey] () throws(UnlockRefusal) in
            UnlockSecret(masterKey)
        }
        #expect(try setup.unlock(key) == .success(false))
    }

    private func refused(
        _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
    ) {
        #expect(throws: StoreError.locked, comment, sourceLocation: sourceLocation) { try body() }
    }

    private func find(_ name: String, in parent: NodeID? = nil) throws -> NodeID {
        try system.lookUp(ascii(name), in: parent ?? inbox).id
    }

    private func open(_ id: NodeID, _ flags: Int32 = O_RDONLY) throws {
        system.release(try system.open(id, flags: flags, for: .root, workspace: vault.workspace))
    }

    private func rename(_ name: String, to newName: String, in parent: NodeID? = nil, flags: UInt32 = 0) throws {
        try system.rename(
            ascii(name), in: inbox, to: ascii(newName), in: parent ?? inbox, flags: flags, for: vault.caller)
    }

    /// Waits until the files closed during the lock are purged.
    private func awaitPurge() throws { #expect(try setup.lock()) }

    @Test(
        "a file is made, written, renamed and removed while locked, and read only after the unlock",
        arguments: [false, true])
    func arrival(forgets: Bool) throws {
        try lock(forgets: forgets)
        #expect(try find("inbox", in: .root) == inbox)
        let (entry, handle) = try system.create(
            ascii("new.part"), in: inbox, mode: 0o644, flags: O_RDWR, for: vault.caller)
        try vault.write(handle, pattern(10_000))
        // A multiplexer reads its own output.
        #expect(try vault.read(handle) == pattern(10_000))
        refused { try open(entry.id) }
        try system.synchronize(handle, dataOnly: false)
        system.release(handle)
        try awaitPurge()
        #expect(system.cache.usedSize == 0 && (!forgets || !handle.file.hasKeys))
        #expect(handle.file.isSealed)
        for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND] {
            refused { try open(entry.id, flags) }
        }
        if forgets { refused { _ = try vault.read(handle) } }
        var changes = AttributeChanges()
        changes.length = 0
        refused { _ = try system.change(entry.id, changes, handle: nil, workspace: vault.workspace) }
        (changes.length, changes.mode) = (nil, 0o600)
        changes.modificationTime = timespec(tv_sec: 1000, tv_nsec: 5)
        let changed = try system.change(entry.id, changes, handle: nil, workspace: vault.workspace)
        #expect(changed.st_size == 10_000 && changed.st_mode & 0o777 == 0o600 && changed.st_mtim.tv_sec == 1000)
        refused { try system.setAttribute(entry.id, ascii("user.a"), value: [1], flags: 0) }
        refused { _ = try system.attribute(entry.id, ascii("user.a")) }
        try rename("new.part", to: "new")
        #expect(try find("new") == entry.id)
        refused {
            _ = try system.openDirectory(inbox).node
            _ = try vault.names(inbox)
        }
        #expect(setup.controller.status().arrivedFiles == 1)
        try vault.file("other", in: inbox)
        #expect(setup.controller.status().arrivedFiles == 2)
        try system.remove(ascii("other"), in: inbox, isDirectory: false)
        #expect(throws: StoreError.system(.noSuchFileOrDirectory)) { try find("other") }
        #expect(setup.controller.status().arrivedFiles == 1)
        try unlock()
        #expect(setup.controller.status().arrivedFiles == 1)
        #expect(try vault.content("inbox", "new") == pattern(10_000) && vault.names(inbox) == ["new"])
        try lock(forgets: forgets)
        #expect(setup.controller.status().arrivedFiles == 0)
        refused { _ = try find("new") }
        try unlock()
        #expect(setup.controller.status().arrivedFiles == 0)
        try vault.remount()
        #expect(try vault.content("inbox", "new") == pattern(10_000))
    }

    @Test(
        "names of before the lock are refused: finding, replacing, moving, removing", arguments: [false, true])
    func before(forgets: Bool) throws {
        let old = try vault.file("old", in: inbox, pattern(100)).id
        try vault.file("open to all", in: inbox, pattern(100))
        try Self.set(try find("open to all"), "none", system)
        let directory = try vault.directory("complete", in: inbox)
        try Self.set(directory, "complete", system)
        try lock(forgets: forgets)
        try vault.file("new", in: inbox)
        for name in ["old", "open to all", "complete"] {
            refused("\(name)") { _ = try find(name) }
            refused("\(name)") { try system.remove(ascii(name), in: inbox, isDirectory: name == "complete") }
            refused("\(name)") { try rename(name, to: "moved") }
            refused("\(name)") { try rename("new", to: name) }
            refused("\(name)") { try rename("new", to: name, flags: linux_RENAME_EXCHANGE) }
        }
        refused { try open(old) }
        refused { _ = try system.attributes(old) }
        refused { _ = try vault.file("x", in: directory) }
        // The other directory's class hides the names in it.
        refused { try rename("new", to: "new", in: directory) }
        try unlock()
        #expect(try vault.names(inbox).sorted() == ["complete", "new", "old", "open to all"])
        #expect(try vault.content("inbox", "old") == pattern(100))
    }

    @Test("a whiteout that a rename leaves is new, so it can be found and removed", arguments: [false, true])
    func whiteout(forgets: Bool) throws {
        try lock(forgets: forgets)
        let file = try vault.file("new", in: inbox).id
        try rename("new", to: "moved", flags: linux_RENAME_WHITEOUT)
        #expect(try find("moved") == file && system.attributes(find("new")).st_mode == S_IFCHR)
        try system.remove(ascii("new"), in: inbox, isDirectory: false)
        try unlock()
        #expect(try vault.names(inbox) == ["moved"])
    }

    @Test(
        "Inbox-4: directories are inboxes, those of before too; a file gets a second name, a symbolic link is refused",
        arguments: [false, true])
    func directories(forgets: Bool) throws {
        let tmp = try vault.directory("tmp", in: inbox)
        try lock(forgets: forgets)
        #expect(try find("tmp") == tmp)
        let new = try vault.directory("new", in: inbox)
        let file = try vault.file("message", in: tmp, pattern(50)).id
        try system.rename(ascii("message"), in: tmp, to: ascii("message"), in: new, flags: 0, for: vault.caller)
        #expect(try find("message", in: new) == file)
        refused { _ = try system.make(ascii("l"), in: inbox, .link(target: ascii("new")), for: vault.caller) }
        _ = try system.make(ascii("h"), in: inbox, .hardLink(of: file), for: vault.caller)
        try system.remove(ascii("message"), in: new, isDirectory: false)
        try rename("h", to: "message", in: new)
        refused { try Self.set(new, "none", system) }
        #expect(try system.attribute(new, ascii("user.vaultfs.class")) == ascii("inbox"))
        let emptied = try vault.directory("emptied", in: inbox)
        #expect(emptied != new)
        try system.remove(ascii("emptied"), in: inbox, isDirectory: true)
        refused { try system.remove(ascii("tmp"), in: inbox, isDirectory: true) }
        try unlock()
        #expect(try vault.content("inbox", "new", "message") == pattern(50))
        #expect(try system.attribute(file, ascii("user.vaultfs.class")) == ascii("unless-open"))
        _ = try system.make(ascii("l"), in: inbox, .link(target: ascii("new")), for: vault.caller)
    }

    @Test(
        "a file that is being written when the lock comes is written on, and gets its name",
        arguments: [false, true])
    func recording(forgets: Bool) throws {
        let (_, handle) = try system.create(ascii("r~"), in: inbox, mode: 0o644, flags: O_WRONLY, for: vault.caller)
        try vault.write(handle, pattern(5000))
        try lock(forgets: forgets)
        try vault.write(handle, pattern(5000), at: 5000)
        system.release(handle)
        try awaitPurge()
        try rename("r~", to: "r")
        #expect(setup.controller.status().arrivedFiles == 1)
        try unlock()
        #expect(try vault.content("inbox", "r") == pattern(5000) + pattern(5000))
    }

    @Test(
        "a file that was there before is found while the program that had it open writes it, and not after its close",
        arguments: [false, true])
    func oldFileInUse(forgets: Bool) throws {
        let id = try vault.file("old", in: inbox, pattern(100)).id
        let handle = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        try vault.write(handle, pattern(5000))
        try lock(forgets: forgets)
        try vault.write(handle, pattern(5000), at: 5000)
        #expect(try find("old") == id)
        #expect(setup.controller.status().arrivedFiles == 0)
        system.release(handle)
        refused { _ = try find("old") }
        refused { _ = try system.attributes(id) }
        refused { try rename("old", to: "new") }
        try unlock()
        #expect(try vault.content("inbox", "old") == pattern(5000) + pattern(5000))
    }

    @Test("a file that is closed while a lock begins is not found by its name")
    func closedAsTheLockBegins() throws {
        let id = try vault.file("old", in: inbox, pattern(100)).id
        let handle = try system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
        system.beginArrivals()
        system.release(handle)
        try lock(forgets: false)
        refused { _ = try find("old") }
        try unlock()
    }

    @Test("files that are closed or arrive during a lock are sealed, and so are those whose keys it has wiped")
    func seals() throws {
        let (entry, handle) = try system.create(
            ascii("logged"), in: .root, mode: 0o644, flags: O_RDWR, for: vault.caller)
        try Self.set(entry.id, "complete", system)
        try vault.write(handle, pattern(9000))
        try handle.synchronize(dataOnly: false)
        try vault.write(handle, pattern(100, seed: 3), at: 4000)
        system.release(handle)
        #expect(handle.file.isLogged && !handle.file.isSealed)
        try lock(forgets: true)
        let (_, arrived) = try system.create(
            ascii("arrived"), in: inbox, mode: 0o644, flags: O_RDWR, for: vault.caller)
        try vault.write(arrived, pattern(6000))
        system.release(arrived)
        try awaitPurge()
        #expect(arrived.file.isSealed)
        try unlock()
        system.store.durability.sealer.sealAll()
        #expect(handle.file.isSealed)
    }

    @Test("a link, a move and a special file make no name of before the lock known", arguments: [false, true])
    func otherNames(forgets: Bool) throws {
        let open = try vault.directory("open")
        try Self.set(open, "none", system)
        try vault.file("f", in: open, pattern(10))
        let file = try find("f", in: open)
        _ = try system.make(ascii("also"), in: inbox, .hardLink(of: file), for: vault.caller)
        let fifo = try system.make(
            ascii("fifo"), in: inbox, .node(mode: S_IFIFO | 0o600, device: 0), for: vault.caller
        ).id
        try Self.set(.root, "none", system)
        try lock(forgets: forgets)
        for id in [file, fifo] {
            refused { _ = try system.make(ascii("new"), in: inbox, .hardLink(of: id), for: vault.caller) }
        }
        refused { _ = try system.attributes(fifo) }
        refused {
            try system.rename(ascii("f"), in: open, to: ascii("new"), in: inbox, flags: 0, for: vault.caller)
        }
        for name in ["also", "fifo"] { refused { _ = try find(name) } }
        // An inbox accepts a file with a single name.
        try vault.file("moved", in: open)
        try system.rename(ascii("moved"), in: open, to: ascii("moved"), in: inbox, flags: 0, for: vault.caller)
        _ = try find("moved")
        try unlock()
    }

    @Test("a lock file that is gone again leaves nothing that a later lock takes for arrived")
    func flapping() throws {
        try setup.place.create()
        try vault.file("early", in: inbox)
        try setup.place.remove()
        setup.controller.poke()
        #expect(try setup.unlock() == .success(true))
        try lock(forgets: false)
        refused { _ = try find("early") }
        #expect(setup.controller.status().arrivedFiles == 0)
        try unlock()
    }

    @Test("a removal that fails leaves a directory that has arrived what it was")
    func failedRemoval() throws {
        try lock(forgets: false)
        let directory = try vault.directory("d", in: inbox)
        try vault.file("x", in: directory)
        #expect(throws: StoreError.system(.directoryNotEmpty)) {
            try system.remove(ascii("d"), in: inbox, isDirectory: true)
        }
        try system.remove(ascii("x"), in: directory, isDirectory: false)
        try system.remove(ascii("d"), in: inbox, isDirectory: true)
        try unlock()
    }

    @Test("an inbox's own encrypted attributes are refused while it is locked", arguments: [false, true])
    func attributes(forgets: Bool) throws {
        let name = ascii("user.note")
        try system.setAttribute(inbox, name, value: [1], flags: 0)
        try lock(forgets: forgets)
        refused { _ = try system.attribute(inbox, name) }
        refused { _ = try system.attributeNames(inbox) }
        refused { try system.setAttribute(inbox, name, value: [2], flags: 0) }
        refused { try system.setAttribute(inbox, name, value: nil, flags: 0) }
        #expect(try system.attributeNames(try vault.directory("new", in: inbox)).isEmpty)
        try unlock()
        #expect(try system.attribute(inbox, name) == [1])
    }

    @Test(
        "a disk that is full from any call on, while locked: what was acknowledged is there",
        arguments: [false, true])
    func fullDisk(forgets: Bool) throws {
        var acknowledged: [String: [UInt8]] = [:]
        var call = 0
        var wasFull = true
        while wasFull {
            try lock(forgets: forgets)
            let name = "new \(call)"
            wasFull = try CallWatcher.fullDisk(in: vault.path, from: call) {
                let made = try? system.create(
                    ascii(name), in: inbox, mode: 0o644, flags: O_RDWR, for: vault.caller)
                guard let handle = made?.handle else { return }
                acknowledged[name] = fill(handle)
                system.release(handle)
                try awaitPurge()
            }
            try unlock()
            if let bytes = acknowledged[name] {
                #expect(try vault.content("inbox", name).starts(with: bytes), "full at call \(call)")
            }
            call += 1
        }
        #expect(call > 5 && acknowledged["new \(call - 1)"]?.count == 11_000)
        try vault.remount()
        for (name, bytes) in acknowledged {
            #expect(try vault.content("inbox", name).starts(with: bytes), "\(name)")
        }
    }

    /// Writes and syncs until a call fails. Returns the acknowledged content.
    private func fill(_ handle: FileHandle) -> [UInt8] {
        var bytes: [UInt8] = []
        for size in [5000, 3000, 3000] {
            let part = pattern(bytes.count + size)[bytes.count...]
            let count = try? Array(part).withUnsafeBytes {
                try system.write(handle, $0, at: UInt64(bytes.count), workspace: vault.workspace)
            }
            guard let count else { break }
            bytes += part.prefix(count)
            if count < size { break }
            try? system.synchronize(handle, dataOnly: true)
        }
        return bytes
    }

    @Test("Inbox-3: only directories become inboxes")
    func files() throws {
        let file = try vault.file("f", in: inbox).id
        #expect(throws: StoreError.system(.invalidArgument)) { try Self.set(file, "inbox", system) }
    }

    @Test("a mount that was never unlocked takes nothing")
    func lockedFromTheStart() throws {
        system.gate.beLockedFromTheStart()
        refused { try vault.file("x", in: inbox) }
        refused { _ = try find("inbox", in: .root) }
    }
}
