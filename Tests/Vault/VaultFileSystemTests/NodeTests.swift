import CLinux
import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import VaultFileSystem

/// Names as reported to the kernel, and the nodes for them.
@Suite struct NodeTests {
    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }

    init() throws { vault = try MountedVault() }

    @Test("A forget undoes each lookup, and then no node is left")
    func forgets() throws {
        let directory = try vault.directory("d")
        let inner = try vault.directory("e", in: directory)
        let file = try vault.file("f", in: inner, [1, 2]).id
        #expect(vault.nodes == 4)
        let again = try system.lookUp(ascii("f"), in: inner).id
        #expect(again == file)
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("g"), in: inner) }
        // The kernel forgets parents before children, too.
        system.forget(directory, count: 1)
        system.forget(inner, count: 1)
        #expect(try vault.content(file) == [1, 2])
        system.forget(file, count: 1)
        #expect(vault.nodes == 4)
        system.forget(file, count: 1)
        #expect(vault.nodes == 1)
        #expect(try vault.content("d", "e", "f") == [1, 2])
        #expect(vault.nodes == 1)
    }

    @Test("A listing with attributes counts only the entries that were used")
    func listingForgets() throws {
        for number in 0..<30 { system.forget(try vault.file("f\(number)").id, count: 1) }
        #expect(vault.nodes == 1)
        #expect(try vault.names(replySize: 7, withAttributes: true).count == 30)
        #expect(vault.nodes == 1)
    }

    @Test("A directory that has got another inode number is known by its record, as on FAT")
    func directoryWithAnotherNumber() throws {
        let directory = try vault.directory("d")
        let inner = try vault.directory("e", in: directory)
        try vault.file("f", in: inner, [1])
        let path = try vault.backing("d")
        // Close all directories, because an open one would keep the inode number in use.
        system.closeDirectories()
        #expect(try Command(["cp", "-a", path, path + ".new"]).run().exitCode == 0)
        #expect(try Command(["rm", "-r", path]).run().exitCode == 0)
        #expect(Glibc.rename(path + ".new", path) == 0)
        #expect(try vault.names(directory) == ["e"])
        system.closeDirectories()
        #expect(try system.attributes(directory).st_mode & S_IFMT == S_IFDIR)
        #expect(try vault.names(inner) == ["f"])
        system.closeDirectories()
        // A different directory with the same name must not pass for this one.
        #expect(Glibc.rename(path, path + ".old") == 0)
        _ = try vault.directory("d")
        expect(.staleNFSFileHandle) { _ = try vault.names(directory) }
    }

    @Test("A renamed file is the same node under its new name, also in another directory")
    func rename() throws {
        let (a, b) = (try vault.directory("a"), try vault.directory("b"))
        let file = try vault.file("f", in: a, [1]).id
        try system.rename(ascii("f"), in: a, to: ascii("g"), in: b, flags: 0, for: vault.caller)
        #expect(try system.lookUp(ascii("g"), in: b).id == file)
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("f"), in: a) }
        #expect(try vault.content(file) == [1])
        // A directory moves with its content.
        try system.rename(ascii("b"), in: .root, to: ascii("c"), in: a, flags: 0, for: vault.caller)
        #expect(try vault.content(file) == [1])
        #expect(try vault.content("a", "c", "g") == [1])
        #expect(try vault.names() == ["a"])
    }

    @Test("A file that is made while another loses its last name is not confused with it")
    func reusedInode() throws {
        // For a long name the store removes the entry first, and then its sidecar. In between, it may reuse the inode.
        let long = ascii(String(repeating: "l", count: 200))
        let other = try vault.directory("other")
        let old = try vault.file(String(repeating: "l", count: 200), [1]).id
        system.store.durability.sealer.sealAll()
        let (system, caller) = (self.system, vault.caller)
        let made = Mutex<NodeEntry?>(nil)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            // This is the first call after the inode was freed.
            guard call.kind == .remove, made.withLock({ $0 == nil }),
                (try? system.lookUp(long, in: .root)) == nil
            else { return 0 }
            let created = try? system.create(ascii("new"), in: other, mode: 0o644, flags: O_RDWR, for: caller)
            if let created { system.release(created.handle) }
            made.withLock { $0 = created?.entry }
            return 0
        }
        // The kernel reports the path of a descriptor in this form.
        let path = vault.path.replacing("//", with: "/")
        try CallWatcher.watch(path, answer) { () throws in try system.remove(long, in: .root, isDirectory: false) }
        let entry = try #require(made.withLock { $0 })
        #expect(entry.id != old)
        #expect(try system.lookUp(ascii("new"), in: other).id == entry.id)
        _ = try system.make(ascii("linked"), in: other, .hardLink(of: entry.id), for: vault.caller)
        #expect(try system.attributes(entry.id).st_nlink == 2)
    }

    /// Removes f, or replaces it by new. The store's call fails after `meanwhile`.
    private func failRemoval(isReplaced: Bool, _ meanwhile: @escaping @Sendable () -> Void) {
        system.store.durability.sealer.sealAll()
        let refuse = { @Sendable (call: WatchedCall) -> Int32 in
            guard [.remove, .rename].contains(call.kind) else { return 0 }
            meanwhile()
            return EIO
        }
        CallWatcher.watch(vault.path, refuse) {
            expect(.ioError) {
                if isReplaced {
                    try system.rename(
                        ascii("new"), in: .root, to: ascii("f"), in: .root, flags: 0, for: vault.caller)
                } else {
                    try system.remove(ascii("f"), in: .root, isDirectory: false)
                }
            }
        }
    }

    @Test("A file that could not be removed, or replaced, is the same node", arguments: [1, 2], [false, true])
    func failedRemoval(links: Int, isReplaced: Bool) throws {
        let file = try vault.file("f", [1]).id
        if links > 1 { _ = try system.make(ascii("g"), in: .root, .hardLink(of: file), for: vault.caller) }
        _ = try vault.file("new", [2])
        failRemoval(isReplaced: isReplaced) {}
        #expect(try system.lookUp(ascii("f"), in: .root).id == file)
        #expect(try vault.content(file) == [1])
        try system.remove(ascii("f"), in: .root, isDirectory: false)
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("f"), in: .root) }
    }

    @Test(
        "A file that is looked up while its removal fails keeps its node, and stays open once",
        arguments: [false, true])
    func lookedUpWhileLeaving(isReplaced: Bool) throws {
        let file = try vault.file("f", [1]).id
        _ = try vault.file("new", [2])
        let system = self.system
        failRemoval(isReplaced: isReplaced) { #expect((try? system.lookUp(ascii("f"), in: .root).id) == file) }
        #expect(try system.lookUp(ascii("f"), in: .root).id == file)
        #expect(try vault.content(file) == [1])
    }

    @Test(
        "A name that another object has by now is looked for again, whatever that object is", arguments: [true, false])
    func replacedBehindOurBack(isLink: Bool) throws {
        let file = try vault.file("f", [1]).id
        system.store.durability.sealer.sealAll()
        let (path, caller) = (try vault.backing("f"), vault.caller)
        // Made before the file is removed, so that it does not get the file's inode number.
        #expect((isLink ? symlink("/", path + "x") : mkdir(path + "x", 0o700)) == 0)
        #expect(unlink(path) == 0 && Glibc.rename(path + "x", path) == 0)
        expect(.staleNFSFileHandle) {
            _ = try system.open(file, flags: O_RDWR, for: caller, workspace: vault.workspace)
        }
    }

    @Test("A stat that began while a file was being sealed, and returned after it, shows nothing of the seal")
    func staleSealing() throws {
        let file = try system.nodes.node(try vault.file("f").id)
        var before = stat()
        (before.st_mode, before.st_mtim.tv_sec, before.st_ctim.tv_sec) = (S_IFREG | 0o4755, 10, 20)
        var (meanwhile, after) = (before, before)
        (meanwhile.st_mode, meanwhile.st_mtim.tv_sec, meanwhile.st_ctim.tv_sec) = (S_IFREG | 0o755, 30, 30)
        after.st_ctim.tv_sec = 40
        file.updateSealing(before: before, after: nil)
        file.updateSealing(before: before, after: after)
        for status in [meanwhile, after] {
            let shown = file.withoutSealing(status)
            #expect(shown.st_mode == before.st_mode && shown.st_mtim.tv_sec == 10 && shown.st_ctim.tv_sec == 20)
        }
        // A later change shows a later time.
        (after.st_mode, after.st_mtim.tv_sec, after.st_ctim.tv_sec) = (S_IFREG | 0o600, 50, 50)
        let shown = file.withoutSealing(after)
        #expect(shown.st_mode == after.st_mode && shown.st_mtim.tv_sec == 50 && shown.st_ctim.tv_sec == 50)
    }

    @Test("A file renamed over another replaces it; an open handle keeps the old one")
    func renameOver() throws {
        let first = try vault.file("first", [1]).id
        let second = try vault.file("second", [2]).id
        let handle = try system.open(second, flags: O_RDWR, for: .root, workspace: vault.workspace)
        expect(.fileExists) {
            try system.rename(
                ascii("first"), in: .root, to: ascii("second"), in: .root, flags: linux_RENAME_NOREPLACE,
                for: vault.caller)
        }
        try system.rename(ascii("first"), in: .root, to: ascii("second"), in: .root, flags: 0, for: vault.caller)
        #expect(try system.lookUp(ascii("second"), in: .root).id == first)
        #expect(try vault.content("second") == [1])
        try vault.write(handle, [7], at: 1)
        #expect(try vault.read(handle) == [2, 7])
        #expect(try system.attributes(second).st_nlink == 0)
        system.release(handle)
        system.forget(second, count: 1)
        system.forget(first, count: 2)
        #expect(vault.nodes == 1)
        expect(.invalidArgument) {
            try system.rename(ascii("second"), in: .root, to: ascii("x"), in: .root, flags: 1 << 30, for: vault.caller)
        }
    }

    @Test("Exchanged names keep their nodes", arguments: [true, false])
    func exchange(isLong: Bool) throws {
        let directory = try vault.directory("d")
        let (a, b) = isLong ? (String(repeating: "a", count: 200), String(repeating: "b", count: 255)) : ("a", "b")
        let file = try vault.file(a, [1]).id
        let other = try vault.file(b, in: directory, [2]).id
        try system.rename(
            ascii(a), in: .root, to: ascii(b), in: directory, flags: linux_RENAME_EXCHANGE, for: vault.caller)
        #expect(try system.lookUp(ascii(a), in: .root).id == other)
        #expect(try system.lookUp(ascii(b), in: directory).id == file)
        #expect(try vault.content(file) == [1])
        #expect(try vault.content(other) == [2])
        #expect(try Set(vault.names()) == ["d", a])
        try vault.remount()
        #expect(try vault.content("d", b) == [1])
        #expect(try vault.content(a) == [2])
    }

    @Test("A hard link is the same node, which lives until its last name is removed")
    func hardLinks() throws {
        let directory = try vault.directory("d")
        let file = try vault.file("f", [1]).id
        #expect(try system.make(ascii("g"), in: directory, .hardLink(of: file), for: vault.caller).id == file)
        try system.remove(ascii("f"), in: .root, isDirectory: false)
        #expect(try vault.content(file) == [1])
        #expect(try system.attributes(file).st_nlink == 1)
        // A rename from one name to another of the same file does nothing.
        _ = try system.make(ascii("h"), in: .root, .hardLink(of: file), for: vault.caller)
        try system.rename(ascii("h"), in: .root, to: ascii("g"), in: directory, flags: 0, for: vault.caller)
        #expect(try vault.names().sorted() == ["d", "h"])
        try system.remove(ascii("h"), in: .root, isDirectory: false)
        try system.remove(ascii("g"), in: directory, isDirectory: false)
        expect(.staleNFSFileHandle) { _ = try vault.content(file) }
        system.forget(file, count: 3)
        system.forget(directory, count: 1)
        #expect(vault.nodes == 1)
    }

    @Test("An open file that was unlinked can still be read, written and examined")
    func unlinkedOpenFile() throws {
        let (entry, handle) = try system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        try system.remove(ascii("f"), in: .root, isDirectory: false)
        try vault.write(handle, Array(repeating: 5, count: 9000))
        #expect(try vault.read(handle).count == 9000)
        #expect(try system.attributes(entry.id).st_size == 9000)
        // A new file with the old name is another node.
        let other = try vault.file("f", [1])
        #expect(other.id != entry.id)
        system.release(handle)
        system.shutDown()
        #expect(try vault.content("f") == [1])
    }

    @Test("A removed directory can still be examined; nothing can be made in it", arguments: [true, false])
    func removedDirectory(byRename: Bool) throws {
        let directory = try vault.directory("d")
        if byRename {
            let other = try vault.directory("other")
            try system.rename(ascii("other"), in: .root, to: ascii("d"), in: .root, flags: 0, for: vault.caller)
            #expect(try system.lookUp(ascii("d"), in: .root).id == other)
        } else {
            try system.remove(ascii("d"), in: .root, isDirectory: true)
        }
        #expect(try system.attributes(directory).st_nlink == 0)
        // Every file system returns this from getdents(2) for a removed directory. readdir(3) treats it as the end.
        expect(.noSuchFileOrDirectory) { _ = try vault.names(directory) }
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("x"), in: directory) }
        #expect(throws: StoreError.self) { try vault.file("x", in: directory) }
        expect(.noSuchFileOrDirectory) { _ = try vault.directory("x", in: directory) }
        system.forget(directory, count: 1)
        #expect(vault.nodes == (byRename ? 2 : 1))
    }

    @Test(
        "A directory that could not be removed is unchanged, and its parent's time too", arguments: [true, false],
        ["d", String(repeating: "long", count: 60)])
    func notRemoved(byRename: Bool, name: String) throws {
        let directory = try vault.directory(name)
        let file = try vault.file("f", in: directory, [1]).id
        let other = try vault.directory("other")
        let past = [timespec(tv_sec: 1, tv_nsec: 0), timespec(tv_sec: 2, tv_nsec: 0)]
        try #require(utimensat(AT_FDCWD, vault.path, past, 0) == 0)
        expect(.directoryNotEmpty) {
            if byRename {
                try system.rename(ascii("other"), in: .root, to: ascii(name), in: .root, flags: 0, for: vault.caller)
            } else {
                try system.remove(ascii(name), in: .root, isDirectory: true)
            }
        }
        #expect(try system.attributes(.root).st_mtim.tv_sec == 2)
        #expect(try system.nodes.node(directory).opening.withLock { $0.removedDirectory == nil })
        #expect(try vault.content(file) == [1])
        #expect(try system.attributes(other).st_nlink >= 1)
    }

    @Test("An inode number that another file has got in the backing directory is another file")
    func inodeReuse() throws {
        // The test cannot choose the new file's inode number, so it uses a node with that number for the old file.
        let old = try vault.file("old", [1, 1, 1]).id
        _ = try vault.content(old)
        system.shutDown()
        let other = try vault.file("new", [2, 2]).id
        // Puts another file's content on this node's inode, in the backing directory.
        let moved = try Array(dataOf(try vault.backing("new")))
        try moved.withUnsafeBytes { bytes in
            let file = open(try vault.backing("old"), O_WRONLY | O_TRUNC)
            defer { close(file) }
            #expect(Glibc.write(file, bytes.baseAddress, bytes.count) == bytes.count)
        }
        expect(.staleNFSFileHandle) { _ = try vault.content(old) }
        let fresh = try system.lookUp(ascii("old"), in: .root).id
        #expect(fresh != old)
        #expect(try vault.content(fresh) == [2, 2])
        #expect(try vault.content(other) == [2, 2])
    }

    @Test(
        "A file, directory or link replaced by something else in the backing directory: stale, not followed, no hang",
        .timeLimit(.minutes(60)))
    func swapped() throws {
        let file = try vault.file("f", [1]).id
        let directory = try vault.directory("d")
        let inner = try vault.file("x", in: directory, [1]).id
        system.shutDown()
        let (filePath, directoryPath) = (try vault.backing("f"), try vault.backing("d"))
        #expect(Glibc.rename(filePath, vault.path + "/moved") == 0)
        #expect(mkfifo(filePath, 0o600) == 0)
        expect(.staleNFSFileHandle) { _ = try vault.content(file) }
        expect(.staleNFSFileHandle) { _ = try system.attributes(file) }
        let fifo = try system.lookUp(ascii("f"), in: .root)
        #expect(fifo.id != file)
        expect(.invalidArgument) { _ = try vault.content(fifo.id) }
        system.directories.remove(try system.nodes.node(directory))
        #expect(Glibc.rename(directoryPath, vault.path + "/elsewhere") == 0)
        #expect(symlink("elsewhere", directoryPath) == 0)
        expect(.staleNFSFileHandle) { _ = try vault.content(inner) }
        expect(.staleNFSFileHandle) { _ = try vault.names(directory) }
        let link = try system.lookUp(ascii("d"), in: .root)
        expect(.notDirectory) { _ = try system.lookUp(ascii("x"), in: link.id) }
        expect(.ioError) { _ = try system.linkTarget(link.id) }
    }

    private func dataOf(_ path: String) throws -> [UInt8] {
        let descriptor = Descriptor(owning: open(path, O_RDONLY))
        var bytes = [UInt8](repeating: 0, count: Int(try descriptor.status().st_size))
        let count = try bytes.withUnsafeMutableBytes { try descriptor.read(at: 0, into: $0) }
        return Array(bytes[..<count])
    }
}
