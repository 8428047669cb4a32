import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import Testing
import VaultFormat
import VaultStore

@testable import VaultFileSystem

/// Listings (FileFormat: Names).
@Suite struct DirectoryTests {
    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }

    init() throws { vault = try MountedVault() }

    private func fill(_ count: Int) throws -> Set<String> {
        let names = (0..<count).map { number in
            number % 10 == 0 ? String(repeating: "l", count: 180) + "\(number)" : "name \(number)"
        }
        for name in names { system.forget(try vault.file(name).id, count: 1) }
        return Set(names)
    }

    @Test("However large the replies are, every name is listed once", arguments: [1, 3, 24, 455, .max], [true, false])
    func replies(size: Int, withAttributes: Bool) throws {
        let names = try fill(1000)
        let listed = try vault.names(replySize: size, withAttributes: withAttributes)
        #expect(listed.count == names.count)
        #expect(Set(listed) == names)
    }

    @Test("Store-13: a listing removes leftovers of another mount, but in the root only a mount does")
    func leftovers() throws {
        let directory = try vault.directory("d")
        try vault.file("f", in: directory)
        let path = try vault.backing("d")
        for path in [path, vault.path] {
            try Bytes.put([1], at: path + "/vaultfs.tmp.0123")
            try #require(mkdir(path + "/vaultfs.tmp.4567", 0o700) == 0)
        }
        #expect(try vault.names(directory) == ["f"])
        #expect(try vault.names() == ["d"])
        func isThere(_ entry: String) -> Bool { access(entry, F_OK) == 0 }
        for entry in ["vaultfs.tmp.0123", "vaultfs.tmp.4567"] {
            #expect(!isThere("\(path)/\(entry)"))
            // In a mounted root, such temporary files may be in use by the log or by slot commands.
            #expect(isThere("\(vault.path)/\(entry)"))
        }
        system.shutDown()
        try vault.remount()
        #expect(!isThere("\(vault.path)/vaultfs.tmp.0123"))
    }

    @Test("Directory-4: a directory with the record of one above cannot be listed, and nothing is found in it")
    func repeatedRecord() throws {
        let outer = try vault.directory("d")
        let inner = try vault.directory("c", in: outer)
        try vault.file("f", in: inner)
        let path = try vault.backing("d")
        let entry = try system.directory(system.nodes.node(outer)).encode(ascii("c")).entry
        let name = String(decoding: entry, as: UTF8.self)
        let record = try Bytes.of(path + "/vaultfs.dir")
        // A copy beside the directory, which a later move puts below its original.
        let copy = try vault.backing("copy")
        #expect(mkdir(copy, 0o700) == 0)
        try Bytes.put(record, at: copy + "/vaultfs.dir")
        var below = path
        for _ in 0..<4 {
            below += "/" + name
            mkdir(below, 0o700)
            try Bytes.put(record, at: below + "/vaultfs.dir")
        }
        try vault.remount()
        let found = try system.lookUp(ascii("d"), in: .root).id
        #expect(try vault.names(found) == ["c"])
        let repeated = try system.lookUp(ascii("c"), in: found).id
        expect(.ioError) { _ = try vault.names(repeated) }
        expect(.ioError) { _ = try system.lookUp(ascii("c"), in: repeated) }
        #expect(try vault.names(system.lookUp(ascii("copy"), in: .root).id).isEmpty)
        // mv(1) reacts to this error with a copy that has a secret of its own.
        expect(.improperLink) {
            try system.rename(ascii("copy"), in: .root, to: ascii("copy"), in: found, flags: 0, for: .root)
        }
        try system.rename(ascii("copy"), in: .root, to: ascii("copy 2"), in: .root, flags: 0, for: .root)
    }

    @Test("The work of opening or making a directory does not grow with its depth")
    func depth() throws {
        var parent = NodeID.root
        for _ in 0..<200 { parent = try vault.directory("d", in: parent) }
        try vault.remount()
        let before = system.nodes.steps
        var node = NodeID.root
        for _ in 0..<200 { node = try system.lookUp(ascii("d"), in: node).id }
        #expect(try vault.names(node).isEmpty)
        for _ in 0..<50 { node = try vault.directory("d", in: node) }
        // Lookups that walked through all ancestors would take many more steps.
        #expect(system.nodes.steps - before < 50, "\(system.nodes.steps - before) steps")
    }

    @Test("Names removed while a directory is listed: the others are listed once, and 'rm -r' gets them all")
    func removal() throws {
        let names = try fill(1000)
        let handle = try system.openDirectory(.root)
        var seen: [String] = []
        var offset: Int64 = 0
        while true {
            var batch: [String] = []
            try system.list(handle, from: offset, withAttributes: true) { listed in
                if batch.count == 20 { return false }
                offset = listed.nextOffset
                batch.append(String(decoding: listed.name, as: UTF8.self))
                if let id = listed.id { system.forget(id, count: 1) }
                return true
            }
            if batch.isEmpty { break }
            for name in batch where name != "." && name != ".." {
                try system.remove(ascii(name), in: .root, isDirectory: false)
                seen.append(name)
            }
        }
        #expect(Set(seen) == names)
        #expect(seen.count == names.count)
        #expect(try vault.names() == [])
        #expect(vault.nodes == 1)
    }

    @Test(
        "Store-13: entries that do not authenticate are hidden; those that have the form of a name are counted and reported"
    )
    func hidden() throws {
        let names = try fill(20)
        for name in ["note.txt", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "vaultfs.long.AAAA", "vaultfs.unknown"]
        {
            close(open(vault.path + "/" + name, O_CREAT | O_WRONLY, 0o600))
        }
        let reported = Mutex<Set<String>>([])
        system.setDamageObserver { damage in
            reported.withLock { _ = $0.insert(String(decoding: damage.path?.stored ?? [], as: UTF8.self)) }
        }
        // A long name whose sidecar is missing.
        let long = try #require(names.first { $0.count > 160 })
        #expect(unlink(try vault.backing(long) + ".name") == 0)
        #expect(try Set(vault.names()) == names.subtracting([long]))
        // A hidden name counts each time it is met. One after the last shown name is met again when the listing
        // requests the names after that.
        #expect(system.statistics().hiddenNames ?? 0 >= 2)
        let nameless = try vault.backing(long).dropFirst(vault.path.count + 1)
        #expect(reported.withLock { $0 } == ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", String(nameless)])
        expect(.noSuchFileOrDirectory) { _ = try system.lookUp(ascii("note.txt"), in: .root) }
    }

    @Test("Names-4: an entry moved to another directory is not shown there")
    func movedEntry() throws {
        let directory = try vault.directory("d")
        try vault.file("f", in: directory)
        let entry = try system.directory(system.nodes.node(directory)).encode(ascii("f")).entry
        let name = String(decoding: entry, as: UTF8.self)
        #expect(rename(try vault.backing("d") + "/" + name, vault.path + "/" + name) == 0)
        #expect(try vault.names() == ["d"])
        #expect(system.statistics().hiddenNames ?? 0 >= 1)
    }

    @Test("Store-12: a directory without a valid record is shown, is an error to list, and can be removed")
    func damagedDirectory() throws {
        let directory = try vault.directory("d")
        let record = try vault.backing("d") + "/vaultfs.dir"
        #expect(unlink(record) == 0)
        system.forget(directory, count: 1)
        try vault.remount()
        #expect(try vault.names() == ["d"])
        let found = try system.lookUp(ascii("d"), in: .root)
        expect(.ioError) { _ = try vault.names(found.id) }
        expect(.ioError) { _ = try system.lookUp(ascii("x"), in: found.id) }
        #expect(try system.attributes(found.id).st_mode & S_IFMT == S_IFDIR)
        try system.remove(ascii("d"), in: .root, isDirectory: true)
        #expect(try vault.names() == [])
    }
}
