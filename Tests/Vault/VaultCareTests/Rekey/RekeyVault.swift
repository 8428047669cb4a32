import CLinux
import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultCare
@testable import VaultStore
@testable import VaultStoreTests

/// A vault with an object of every kind, for rekey tests. A copy of it has the state of a kill.
final class RekeyVault {
    /// The data of an object as a mount shows it, and the data of the backing object that a rekey keeps.
    struct Shown: Equatable {
        var kind: UInt32 = 0
        var mode: UInt32 = 0
        var owner: [UInt32] = []
        var modified: [Int] = []
        var contents: [UInt8] = []
        var attributes: [String: [UInt8]] = [:]
        var protectionClass: UInt8 = 0
        /// The other names of the object, sorted.
        var names: [String] = []
        var hasHoles = false
    }

    static let passphrase = Array("correct horse".utf8)
    let vault: VerifierVault
    var path: String { vault.path }

    init(_ fill: (VerifierVaultWriter) throws -> Void = RekeyVault.fill) throws {
        vault = try VerifierVault(fill)
    }

    /// Adds objects that no writer makes: foreign entries, and harmless damage.
    func addForeign() throws {
        try Data([1, 2, 3]).write(to: URL(filePath: path + "/foreign.txt"))
        try FileManager.default.createDirectory(atPath: path + "/lost+found", withIntermediateDirectories: false)
        try Data([UInt8](repeating: 9, count: 500)).write(to: URL(filePath: path + "/lost+found/inside"))
        // This name belongs to a vault nested in this one.
        try Data([4]).write(to: URL(filePath: path + "/lost+found/vaultfs.tmp.1"))
        #expect(truncate(try vault.backing("stump"), 100) == 0)
    }

    static let long = String(repeating: "l", count: 200)

    static func fill(_ writer: VerifierVaultWriter) throws {
        let root = writer.root
        for (name, count) in [("empty", 0), ("one", 1), ("chunk", 4096), ("more", 9000), ("stump", 200), (long, 300)] {
            try writer.file(name, count: count)
        }
        let sparse = try writer.file("sparse", count: 5000)
        try writer.setLength(1_200_000, of: sparse)
        try writer.write(6000, to: sparse, at: 1_200_000)
        try writer.setLength(2_300_000, of: sparse)
        let outer = try writer.directory("outer")
        let inner = try writer.directory("inner", in: outer)
        let longDirectory = try writer.directory(long + "d", in: outer)
        try writer.file("deep " + long, count: 20, in: longDirectory)
        for (index, protectionClass) in ProtectionClass.allCases.enumerated() {
            let directory = try writer.directory("class\(index)")
            try directory.changeClass(to: protectionClass)
            try writer.file("file", count: 5000, in: directory)
            try directory.makeLink(ascii("link"), target: ascii("to \(index)"), owner: nil)
        }
        let attributed = try writer.file("attributed", count: 10, in: inner)
        try writer.setAttribute("user.color", "red", key: attributed.keys.attributeKey, on: attributed.anyDescriptor)
        try writer.setAttribute("user.empty", "", key: attributed.keys.attributeKey, on: attributed.anyDescriptor)
        let packed = ["user.packed": "green", "user.packed empty": ""]
        try writer.setPack(packed, key: attributed.keys.attributeKey, on: attributed.anyDescriptor)
        #expect(fchmod(attributed.anyDescriptor.fd, 0o4751) == 0)
        for (directory, name) in [(root, "user.root"), (inner, "user.inner")] {
            let pin = try directory.reopenedForListing().descriptor
            try writer.setAttribute(name, "of a directory", key: directory.keys.attributeKey, on: pin)
            try writer.setAttribute(name + "2", "", key: directory.keys.attributeKey, on: pin)
            try writer.setPack(packed, key: directory.keys.attributeKey, on: pin)
        }
        try root.link(ascii("hard"), to: try root.encode(ascii("more")).entry, in: root.descriptor)
        try inner.link(ascii(long), to: try root.encode(ascii("more")).entry, in: root.descriptor)
        try root.makeLink(ascii("link"), target: ascii("../somewhere"), owner: nil)
        try inner.link(ascii("hard link"), to: try root.encode(ascii("link")).entry, in: root.descriptor)
        try root.makeNode(ascii("fifo"), mode: S_IFIFO | 0o640, device: 0, owner: nil)
        writer.store.durability.sealer.sealAll()
        let times = [timespec(tv_sec: 1_000_000_000, tv_nsec: 5), timespec(tv_sec: 1_100_000_000, tv_nsec: 7)]
        for directory in [outer, inner, longDirectory] {
            let listing = try directory.reopenedForListing().descriptor
            #expect(futimens(listing.fd, times) == 0)
        }
        #expect(futimens(attributed.anyDescriptor.fd, times) == 0)
    }

    // MARK: Contents

    static func open(_ path: String) throws -> (directory: VaultDirectory, masterKey: SecretBytes, slot: KeySlot) {
        let directory = try VaultDirectory.open(FilePath(path))
        let opened = try directory.openSlot(with: .passphrase(passphrase))
        return (directory, opened.masterKey, opened.slot)
    }

    /// Returns the tree after an open of `path` for writing or reading.
    static func tree(at path: String, isReadOnly: Bool = false) throws -> [String: Shown] {
        let (directory, masterKey, _) = try open(path)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        let store = try Store(root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: isReadOnly)
        var tree: [String: Shown] = [:]
        var names: [UInt64: [String]] = [:]
        try add(store.root, "", store, &tree, &names)
        for group in names.values where group.count > 1 {
            for name in group { tree[name]?.names = group.sorted() }
        }
        return tree
    }

    private static func add(
        _ backing: Descriptor, _ prefix: String, _ store: Store, _ tree: inout [String: Shown],
        _ names: inout [UInt64: [String]]
    ) throws {
        let pinned = try backing.openedAgain(flags: linux_O_PATH | O_DIRECTORY)
        let opened = try OpenDirectory.open(pinned, isRoot: prefix.isEmpty, in: store)
        let listing = try opened.reopenedForListing().descriptor
        tree[prefix, default: Shown()].attributes = try attributes(of: listing, opened.keys.attributeKey)
        tree[prefix, default: Shown()].protectionClass = opened.protectionClass.rawValue
        if prefix.isEmpty {
            let status = try backing.status()
            tree[prefix]?.kind = S_IFDIR
            tree[prefix]?.mode = status.st_mode & 0o7777
            tree[prefix]?.modified = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
        }
        for entry in try backing.allEntries() {
            let blob = opened.descriptor.sidecarBlob(of: entry)
            guard let name = EntryName.decode(entry.bytes, sidecarBlob: blob, keys: opened.keys) else { continue }
            let path = prefix + String(decoding: name, as: UTF8.self)
            let status = try backing.status(of: entry)
            var shown = Shown()
            (shown.kind, shown.mode) = (status.st_mode & S_IFMT, status.st_mode & 0o7777)
            shown.owner = [status.st_uid, status.st_gid]
            shown.modified = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
            names[UInt64(status.st_ino), default: []].append(path)
            switch shown.kind {
            case S_IFDIR:
                tree[path + "/"] = shown
                try add(
                    Descriptor(at: backing, entry, flags: O_RDONLY | O_DIRECTORY), path + "/", store, &tree, &names)
                continue
            case S_IFLNK:
                let stored = try backing.linkTarget(of: entry)
                let found = try store.keyRing.linkTarget(ofStored: stored)
                (shown.contents, shown.protectionClass) = (found.target, found.class.rawValue)
            case S_IFREG where status.st_size >= 128:
                let descriptor = try Descriptor(at: backing, entry, flags: O_RDONLY)
                let file = try FileOpening(descriptor, in: store).open()
                shown.contents = try file.contents()
                shown.protectionClass = file.protectionClass.rawValue
                shown.attributes = try attributes(of: descriptor, file.keys.attributeKey)
                shown.hasHoles = status.st_blocks * 512 < status.st_size / 2
            default: break
            }
            tree[path] = shown
        }
    }

    private static func attributes(of object: Descriptor, _ key: SecretBytes) throws -> [String: [UInt8]] {
        let codec = try AttributeCodec(key: key)
        var result: [String: [UInt8]] = [:]
        for stored in try ExtendedAttributes(object).names() {
            let value = try ExtendedAttributes(object).value(of: stored)
            if stored == AttributeCodec.packName, let pack = try? codec.decrypt(pack: value) {
                for name in pack.names { result[String(decoding: name, as: UTF8.self)] = pack[name] }
            } else if let name = codec.name(ofStored: stored) {
                result[String(decoding: name, as: UTF8.self)] = try codec.decrypt(value: value, name: name)
            } else {
                result[String(decoding: stored, as: UTF8.self)] = value
            }
        }
        return result
    }

    // MARK: Rekeying

    /// Begins a rekey, if none is unfinished.
    static func begin(_ path: String) throws { _ = try begun(path) }

    /// Begins a rekey, if none is unfinished. Returns the vault, and the current master key.
    private static func begun(_ path: String) throws -> (directory: VaultDirectory, masterKey: SecretBytes) {
        let (directory, masterKey, slot) = try open(path)
        guard !directory.configuration.isRekeying else { return (directory, masterKey) }
        let newMaster = try RekeyStart.begin(
            directory, keeping: slot, secret: .passphrase(passphrase), masterKey: masterKey)
        return (try directory.reread(), newMaster)
    }

    /// Begins or continues a rekey, to the end or until `before` throws.
    @discardableResult
    static func rekey(
        _ path: String, threads: Int = 2, before: @escaping RekeyHook = { _ in },
        isStopped: @escaping @Sendable () -> Bool = { false },
        onProblem: @escaping @Sendable (String, String) -> Void = { _, _ in }
    ) throws -> RekeyOutcome {
        let (directory, masterKey) = try begun(path)
        let rekeyer = try Rekeyer(
            directory: directory, masterKey: masterKey, before: before, isStopped: isStopped,
            onProblem: { onProblem(String(decoding: $0, as: UTF8.self), $1) })
        let layout = ChunkLayout(chunkSize: directory.configuration.chunkSize)
        return try rekeyer.run(workspaces: (0..<threads).map { _ in try Workspace(layout: layout) })
    }

    /// Copies a vault with `cp -a`, which keeps hard links, holes, attributes and times.
    static func copy(_ path: String, to other: String) throws {
        try Command(["cp", "-a", path, other]).run().succeeded()
    }

    /// Returns a verifier's findings. During an unfinished rekey they name every object of the previous epoch.
    static func notes(_ path: String) throws -> [String] {
        let (directory, masterKey, _) = try open(path)
        var findings: [String] = []
        _ = try Verifier(directory: directory, masterKey: masterKey).run(onFinding: {
            findings.append(VerifierVault.text($0))
        })
        return findings.sorted()
    }
}
