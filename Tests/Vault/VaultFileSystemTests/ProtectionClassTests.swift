import CLinux
import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// `user.vaultfs.class`, set and inherited (FileFormat: Store-15, Store-20).
@Suite struct ProtectionClassTests {
    private static let name = ascii("user.vaultfs.class")
    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }

    init() throws { vault = try MountedVault() }

    private func set(_ id: NodeID, _ value: String, flags: Int32 = 0) throws {
        try system.setAttribute(id, Self.name, value: ascii(value), flags: flags)
    }

    private func get(_ id: NodeID) throws -> String {
        String(decoding: try system.attribute(id, Self.name), as: UTF8.self)
    }

    private func find(_ name: String, in parent: NodeID = .root) throws -> NodeID {
        try system.lookUp(ascii(name), in: parent).id
    }

    @Test("Store-15: a file, a directory and the root take each class, also after mounting again; it is not listed")
    func change() throws {
        var ids = [try vault.file("f", pattern(5000)).id, try vault.directory("d"), .root]
        for newClass in ["none", "until-first-unlock", "unless-open", "complete", "none"] {
            for id in ids {
                try set(id, newClass)
                #expect(try get(id) == newClass)
                #expect(try system.attributeNames(id) == [])
            }
            try vault.remount()
            ids = [try find("f"), try find("d"), .root]
            for id in ids { #expect(try get(id) == newClass) }
            #expect(try vault.content(ids[0]) == pattern(5000))
        }
    }

    @Test("Attributes that setxattr(2) and removexattr(2) refuse")
    func refused() throws {
        let (file, directory) = (try vault.file("f").id, try vault.directory("d"))
        for id in [file, directory] {
            for value in ["", "None", "none\n", "none\0", "5", "4", "completely"] {
                expect(.invalidArgument, "\(value)") { try set(id, value) }
            }
            expect(.fileExists) { try set(id, "none", flags: linux_XATTR_CREATE) }
            expect(.notPermitted) { try system.setAttribute(id, Self.name, value: nil, flags: 0) }
            #expect(try get(id) == "complete")
        }
        let others = [
            try system.make(ascii("l"), in: .root, .link(target: ascii("f")), for: vault.caller).id,
            try system.make(ascii("p"), in: .root, .node(mode: S_IFIFO | 0o600, device: 0), for: vault.caller).id,
        ]
        for id in others {
            expect(.notPermitted) { try set(id, "none") }
            expect(.noData) { _ = try get(id) }
        }
        try vault.remount(isReadOnly: true)
        expect(.readOnlyFileSystem) { try set(try find("f"), "none") }
        expect(.readOnlyFileSystem) { try set(.root, "none") }
    }

    @Test(
        "Store-20: objects made in a directory are of its class; objects that exist there or are moved in keep their own"
    )
    func inheritance() throws {
        let directory = try vault.directory("d")
        let old = try vault.file("old", in: directory).id
        let moved = try vault.file("moved").id
        try set(directory, "unless-open")
        let file = try vault.file("f", in: directory).id
        let node = try system.make(
            ascii("n"), in: directory, .node(mode: S_IFREG | 0o600, device: 0), for: vault.caller
        ).id
        let inner = try vault.directory("inner", in: directory)
        let deep = try vault.file("deep", in: inner).id
        for id in [file, node, inner, deep] { #expect(try get(id) == "unless-open") }
        #expect(try get(old) == "complete")
        try system.rename(ascii("moved"), in: .root, to: ascii("moved"), in: directory, flags: 0, for: vault.caller)
        #expect(try get(moved) == "complete")
        // Moved out, the directory keeps the class from inside, and so do objects made in it afterwards.
        try system.rename(ascii("inner"), in: directory, to: ascii("out"), in: .root, flags: 0, for: vault.caller)
        #expect(try get(try vault.file("x", in: inner).id) == "unless-open")
        #expect(
            try get(try system.make(ascii("hard"), in: .root, .hardLink(of: file), for: vault.caller).id)
                == "unless-open")
    }

    @Test("Store-20, Store-7: a file without a header gets its parent's class when it is truncated")
    func headerless() throws {
        let directory = try vault.directory("d")
        try vault.file("f", in: directory)
        try set(directory, "none")
        let node = try system.nodes.node(directory)
        let entry = String(decoding: try system.directory(node).encode(ascii("f")).entry, as: UTF8.self)
        try vault.remount()
        #expect(truncate(try vault.backing("d") + "/" + entry, 0) == 0)
        let file = try find("f", in: try find("d"))
        expect(.ioError) { try set(file, "none") }
        system.release(try system.open(file, flags: O_RDWR | O_TRUNC, for: .root, workspace: vault.workspace))
        #expect(try get(file) == "none")
    }

    @Test("Store-20: after a change, no other opening of the directory makes objects of the old class")
    func severalOpenings() throws {
        let directory = try vault.directory("d")
        let node = try system.nodes.node(directory)
        let before = try system.directory(node)
        let listing = try system.openDirectory(directory)
        // Simulates an eviction from the LRU cache, so that the change is made through another opening.
        system.directories.remove(node)
        #expect(try system.directory(node) !== before)
        try set(directory, "none")
        for opening in [before, listing.directory, try system.directory(node)] {
            #expect(opening.protectionClass == .none)
        }
        // Simulates a late insertion of the first opening.
        system.directories.insert(before, for: node)
        #expect(try get(try vault.file("f", in: directory).id) == "none")
        #expect(try system.nodes.node(.root).directoryClass?.value == .complete)
        try set(.root, "unless-open")
        #expect(try system.nodes.node(.root).directoryClass?.value == .unlessOpen)
    }

    @Test("A record that was changed in the backing directory takes effect when the directory is opened again")
    func changedOutside() throws {
        let directory = try vault.directory("d")
        let path = try vault.backing("d") + "/vaultfs.dir"
        try set(directory, "none")
        let other = try Bytes.of(path)
        try set(directory, "complete")
        try Bytes.put(other, at: path)
        system.directories.remove(try system.nodes.node(directory))
        #expect(try get(directory) == "none")
    }

    @Test("An open file has the new class through every handle, can still be written, and keeps its times")
    func openFile() throws {
        let (entry, handle) = try system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        try vault.write(handle, pattern(5000))
        let other = try system.open(entry.id, flags: O_RDONLY, for: .root, workspace: vault.workspace)
        let before = try system.attributes(entry.id)
        try set(entry.id, "none")
        #expect(handle.file.protectionClass == .none && other.file.protectionClass == .none)
        let after = try system.attributes(entry.id)
        #expect(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec)
        try vault.write(handle, [1, 2, 3], at: 5000)
        system.release(handle)
        system.release(other)
        try vault.remount()
        #expect(try vault.content("f") == pattern(5000) + [1, 2, 3])
        #expect(try get(find("f")) == "none")
    }

    @Test("No other times and no other mode are visible while the header is written")
    func meanwhile() throws {
        let (entry, handle) = try system.create(ascii("f"), in: .root, mode: 0o755, flags: O_RDWR, for: vault.caller)
        let before = try system.attributes(entry.id)
        let told = try #require(handle.file.parts.attributes.onHiddenWrite.current)
        let seen = Mutex<stat?>(nil)
        handle.file.parts.attributes.onHiddenWrite.set { [system = vault.system] status in
            told(status)
            guard status.after == nil else { return }
            // A write of the header moves times and mode like this.
            let moved = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 1000, tv_nsec: 5)]
            futimens(handle.file.reader.fd, moved)
            fchmod(handle.file.reader.fd, 0o700)
            let meanwhile = try? system.attributes(entry.id)
            seen.withLock { $0 = meanwhile }
            fchmod(handle.file.reader.fd, 0o755)
        }
        try set(entry.id, "none")
        let meanwhile = try #require(seen.withLock { $0 })
        let after = try system.attributes(entry.id)
        for status in [meanwhile, after] {
            #expect(status.st_mtim.tv_sec == before.st_mtim.tv_sec && status.st_mtim.tv_nsec == before.st_mtim.tv_nsec)
            #expect(status.st_ctim.tv_nsec == before.st_ctim.tv_nsec && status.st_mode == before.st_mode)
        }
        system.release(handle)
    }

    @Test("A file that is not open keeps its times, and is not kept open")
    func closedFile() throws {
        let file = try vault.file("f", pattern(5000)).id
        system.store.durability.sealer.sealAll()
        let before = try system.attributes(file)
        try set(file, "none")
        let after = try system.attributes(file)
        #expect(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec)
        #expect(try system.nodes.node(file).openFile == nil)
        system.forget(file, count: 1)
        #expect(vault.nodes == 1)
    }
}
