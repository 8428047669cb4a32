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

/// Attributes outside `user.*`. The daemon remembers if an object has none.
@Suite struct OtherAttributeTests {
    private let vault: MountedVault
    private var system: VaultFileSystem { vault.system }
    private let name = ascii("system.posix_acl_access")
    /// u::rw-, u:1:r--, g::r--, m::r--, o::--- (linux/posix_acl_xattr.h): version 2, then each tag, permissions and id.
    private let list: [UInt8] =
        [2, 0, 0, 0] + entry(1, 6) + entry(2, 4, id: 1) + entry(4, 4) + entry(16, 4) + entry(32, 0)

    init() throws { vault = try MountedVault() }

    private static func entry(_ tag: UInt8, _ permissions: UInt8, id: UInt8? = nil) -> [UInt8] {
        [tag, 0, permissions, 0] + (id.map { [$0, 0, 0, 0] } ?? [255, 255, 255, 255])
    }

    private func backingAttribute(_ file: String) throws {
        let path = try vault.backing(file)
        try retrying { linux_setxattr(path, "system.posix_acl_access", list, list.count, 0) }
    }

    @Test("One that is set and removed by us is seen at once, of an open file too", arguments: [false, true])
    func changes(isOpen: Bool) throws {
        let file = try vault.file("f", [1]).id
        let handle = isOpen ? try system.open(file, flags: O_RDWR, for: .root, workspace: vault.workspace) : nil
        defer { if let handle { system.release(handle) } }
        for _ in 0..<2 {
            expect(.noData) { _ = try system.attribute(file, name) }
            try system.setAttribute(file, name, value: list, flags: 0)
            #expect(try system.attribute(file, name) == list)
            #expect(try system.attributeNames(file) == [name])
            try system.setAttribute(file, name, value: nil, flags: 0)
        }
        expect(.noData) { _ = try system.attribute(file, name) }
    }

    @Test("A label of SELinux is supported where SELinux runs, and one that is stored is returned anywhere")
    func label() throws {
        let file = try vault.file("f", [1]).id
        let name = ascii("security.selinux")
        let systems = try Descriptor(path: "/proc/filesystems", flags: O_RDONLY).read(at: 0, count: 1 << 16)
        let hasLabels = String(decoding: systems, as: UTF8.self).contains("selinuxfs")
        expect(hasLabels ? .noData : .notSupported) { _ = try system.attribute(file, name) }
        // The error differs for an access list, because programs would take it for an unsupported feature.
        expect(.noData) { _ = try system.attribute(file, self.name) }
        try system.setAttribute(file, self.name, value: list, flags: 0)
        expect(hasLabels ? .noData : .notSupported) { _ = try system.attribute(file, name) }
        guard geteuid() == 0 else { return }
        try system.setAttribute(file, name, value: ascii("label"), flags: 0)
        #expect(try system.attribute(file, name) == ascii("label"))
    }

    @Test("The look for one waits for no writer, which may wait for a checkpoint, and that for the look")
    func besideWriter() throws {
        let file = try vault.file("f", [1]).id
        let handle = try system.open(file, flags: O_RDWR, for: .root, workspace: vault.workspace)
        defer { system.release(handle) }
        let (system, name, workspace) = (system, name, try system.makeWorkspace())
        let state = Monitor((isHeld: true, hasBegun: false, isAnswered: false))
        let hold = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write else { return 0 }
            state.update { $0.hasBegun = true }
            _ = state.wait(until: .now + .seconds(60)) { $0.isHeld ? nil : () }
            return 0
        }
        try CallWatcher.watch(vault.path, hold) {
            nonisolated(unsafe) let own = workspace
            let writer = try BackgroundThread {
                _ = [2].withBytes { try? system.write(handle, $0, at: 0, workspace: own) }
            }
            #expect(state.wait(until: .now + .seconds(30)) { $0.hasBegun ? () : nil } != nil)
            let reader = try BackgroundThread {
                _ = try? system.attribute(file, name)
                state.update { $0.isAnswered = true }
            }
            #expect(state.wait(until: .now + .seconds(30)) { $0.isAnswered ? () : nil } != nil)
            state.update { $0.isHeld = false }
            writer.join()
            reader.join()
        }
    }

    @Test("An object that has none is looked at once; a new node looks again")
    func isRemembered() throws {
        let file = try vault.file("f").id
        try system.setAttribute(file, ascii("user.mine"), value: [1], flags: 0)
        expect(.noData) { _ = try system.attribute(file, name) }
        try backingAttribute("f")
        expect(.noData) { _ = try system.attribute(file, name) }
        #expect(try system.attribute(file, ascii("user.mine")) == [1])
        system.store.durability.sealer.sealAll()
        system.forget(file, count: 1)
        #expect(try system.attribute(try system.lookUp(ascii("f"), in: .root).id, name) == list)
    }

    @Test("A rename makes it unknown", arguments: [0, linux_RENAME_EXCHANGE])
    func rename(flags: UInt32) throws {
        let (plain, listed) = (try vault.file("plain").id, try vault.file("listed").id)
        try system.setAttribute(listed, name, value: list, flags: 0)
        expect(.noData) { _ = try system.attribute(plain, name) }
        try backingAttribute("plain")
        try system.rename(ascii("plain"), in: .root, to: ascii("listed"), in: .root, flags: flags, for: vault.caller)
        #expect(try system.attribute(plain, name) == list)
        if flags != 0 { #expect(try system.attribute(listed, name) == list) }
    }

    @Test("While a checkpoint is running, which may have taken one away, nothing is remembered")
    func duringCheckpoint() throws {
        let file = try vault.file("f", [1]).id
        let handle = try system.open(file, flags: O_RDWR, for: .root, workspace: vault.workspace)
        defer { system.release(handle) }
        // An overwrite goes to the log.
        try vault.write(handle, [2])
        let (system, name) = (self.system, self.name)
        let looks = Atomic(0)
        let look = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .write, !call.path.hasSuffix("vaultfs.log") else { return 0 }
            looks.add(1, ordering: .relaxed)
            expect(.noData) { _ = try system.attribute(file, name) }
            return 0
        }
        try CallWatcher.watch(vault.path, look) { try system.store.log.checkpoint(.due) }
        #expect(looks.load(ordering: .relaxed) > 0)
        try backingAttribute("f")
        #expect(try system.attribute(file, name) == list)
    }

    @Test("A new file in a directory with a default list inherits it, and shows it")
    func inherited() throws {
        let directory = try vault.directory("d")
        expect(.noData) { _ = try system.attribute(directory, ascii("system.posix_acl_default")) }
        try system.setAttribute(directory, ascii("system.posix_acl_default"), value: list, flags: 0)
        let file = try vault.file("f", in: directory).id
        #expect(try system.attribute(file, name).count == list.count)
    }
}
