import FileSystem
import Glibc
import LinuxSystem
import Locking
import TestSupport
import Testing
import VaultFormat

@testable import VaultFileSystem

/// The table of classes, states and operations (Manual/Locking.md), without a kernel.
@Suite struct AdmissionTests {
    /// The operations allowed by a class while the vault is locked.
    struct Row: Sendable, CustomTestStringConvertible {
        var protectionClass: ProtectionClass
        var wasUnlocked: Bool
        /// New opens, lookups and listings, and attributes of closed objects.
        var anew: Bool
        /// Operations through an open handle, and attributes of an open file.
        var open: Bool

        var testDescription: String { "\(protectionClass.name), unlocked before: \(wasUnlocked)" }
    }

    static let table = [true, false].flatMap { before in
        [
            Row(protectionClass: .complete, wasUnlocked: before, anew: false, open: false),
            Row(protectionClass: .unlessOpen, wasUnlocked: before, anew: false, open: true),
            Row(protectionClass: .untilFirstUnlock, wasUnlocked: before, anew: before, open: before),
            Row(protectionClass: .none, wasUnlocked: before, anew: true, open: true),
        ]
    }

    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }

    init() throws { vault = try MountedVault() }

    private func set(_ id: NodeID, _ protectionClass: ProtectionClass) throws {
        try system.setAttribute(
            id, ascii("user.vaultfs.class"), value: ascii(protectionClass.name), flags: 0)
    }

    private func lock(_ row: Row) {
        if row.wasUnlocked { system.gate.enter(.locked) } else { system.gate.beLockedFromTheStart() }
    }

    /// Expects success or a refusal with ENOKEY.
    private func expect(
        _ passes: Bool, _ what: String, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
    ) {
        do {
            try body()
            #expect(passes, "\(what) passed", sourceLocation: sourceLocation)
        } catch {
            #expect(!passes && error as? StoreError == .locked, "\(what): \(error)", sourceLocation: sourceLocation)
        }
    }

    @Test("A file of each class while locked: by name, by node, by an open handle", arguments: table)
    func file(_ row: Row) throws {
        try set(.root, .none)
        let (open, closed) = (try vault.file("open", pattern(5000)).id, try vault.file("closed", pattern(5000)).id)
        for id in [open, closed] { try set(id, row.protectionClass) }
        let handle = try system.open(open, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        defer { system.release(handle) }
        lock(row)

        for (name, id) in [("open", open), ("closed", closed)] {
            let isAttributesAllowed = name == "open" ? row.open : row.anew
            expect(row.anew, "lookup of \(name)") { _ = try system.lookUp(ascii(name), in: .root) }
            expect(row.anew, "open of \(name)") {
                system.release(try system.open(id, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace))
            }
            expect(isAttributesAllowed, "getattr of \(name)") { _ = try system.attributes(id) }
            expect(isAttributesAllowed, "setattr of \(name)") {
                var changes = AttributeChanges()
                changes.mode = 0o600
                _ = try system.change(id, changes, handle: nil, workspace: vault.workspace)
            }
            expect(isAttributesAllowed, "listxattr of \(name)") { _ = try system.attributeNames(id) }
        }
        var content = pattern(5000)
        expect(row.open, "read") { content = try vault.read(handle) }
        #expect(content == pattern(5000))
        expect(row.open, "write") { try vault.write(handle, [1]) }
        expect(row.open, "seek") { _ = try system.seek(handle, from: 0, toHole: true) }
        expect(row.open, "fallocate") {
            try system.allocate(handle, mode: 0, range: 0..<10, workspace: vault.workspace)
        }
        expect(row.anew, "link") {
            _ = try system.make(ascii("link"), in: .root, .hardLink(of: closed), for: vault.caller)
        }
        // A name is protected by the directory's class, an object's attributes by its own.
        #expect(try vault.names().contains("closed"))
    }

    @Test("A directory of each class while locked: its names, and objects made in it", arguments: table)
    func directory(_ row: Row) throws {
        let directory = try vault.directory("d")
        try set(directory, row.protectionClass)
        try vault.file("f", in: directory)
        let handle = try system.openDirectory(directory)
        defer { system.release(handle) }
        lock(row)

        expect(row.anew, "lookup") { _ = try system.lookUp(ascii("f"), in: directory) }
        expect(row.anew, "opendir") { system.release(try system.openDirectory(directory)) }
        expect(row.anew, "readdir") { try system.list(handle, from: 0, withAttributes: true) { _ in true } }
        expect(row.anew, "getattr") { _ = try system.attributes(directory) }
        expect(row.anew, "mkdir") { _ = try vault.directory("new", in: directory) }
        expect(row.anew, "create") { try vault.file("made", in: directory) }
        expect(row.anew, "symlink") {
            _ = try system.make(ascii("l"), in: directory, .link(target: ascii("f")), for: vault.caller)
        }
        expect(row.anew, "unlink") { try system.remove(ascii("f"), in: directory, isDirectory: false) }
        expect(false, "rename into the root") {
            try system.rename(ascii("new"), in: directory, to: ascii("new"), in: .root, flags: 0, for: vault.caller)
        }
    }

    @Test("The root's attributes are shown in every state; of a complete file only dirty mapped pages are accepted")
    func exceptions() throws {
        let file = try vault.file("f", pattern(5000)).id
        let handle = try system.open(file, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        system.gate.enter(.locking)
        _ = try system.attributes(.root)
        _ = try system.space()
        expect(false, "write") { try vault.write(handle, [1]) }
        let count = try [UInt8(9)].withUnsafeBytes {
            try system.write(handle, $0, at: 0, isWriteBack: true, workspace: vault.workspace)
        }
        #expect(count == 1)
        try system.synchronize(handle, dataOnly: false)
        system.release(handle)
        system.gate.enter(.unlocked)
        #expect(try vault.content(file) == [9] + pattern(5000).dropFirst())
    }
}
