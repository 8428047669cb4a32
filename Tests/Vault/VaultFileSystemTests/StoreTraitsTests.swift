import CLinux
import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultFileSystem
@testable import VaultStore

/// Mounts on stores with a missing ability, which the probe finds (StoreTraits).
@Suite(.timeLimit(.minutes(60))) struct StoreTraitsTests {
    private let vault: MountedVault

    init() throws { vault = try MountedVault() }

    private static func isDirectory(_ path: String?) -> Bool {
        var status = stat()
        return path.map { lstat($0, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR } ?? false
    }

    @Test("The longest name is that of which every entry fits the store, and statvfs(3) has it")
    func shortNames() throws {
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            let name = call.path.split(separator: "/").last ?? ""
            return call.kind == .create && name.utf8.count > 143 ? ENAMETOOLONG : 0
        }
        try CallWatcher.watch(vault.path, includesProbe: true, answer) { try vault.remount() }
        #expect(vault.system.store.traits.longestEntry == 143)
        #expect(try vault.system.space().f_namemax == 80)
        for (length, name) in [(255, 255), (235, 255), (234, 144), (189, 112), (175, 112), (143, 80), (20, 0)] {
            #expect(EntryName.longestName(entryLength: length) == name)
        }
        // A read-only mount makes no probe.
        try vault.remount(isReadOnly: true)
        #expect(vault.system.store.traits.locks == nil)
        #expect(try vault.system.space().f_namemax == 255)
    }

    @Test("any call of the probe may fail: the mount works, and the probe leaves nothing")
    func failedProbe() throws {
        try vault.file("f", [1])
        let directory = vault.path
        var (number, isReached) = (0, true)
        while isReached {
            let calls = Mutex(0)
            let answer = { @Sendable [number] (call: WatchedCall) -> Int32 in
                guard call.path.contains("/vaultfs.tmp.probe-"), call.kind != .remove else { return 0 }
                return calls.withLock { calls in
                    defer { calls += 1 }
                    return calls == number ? EIO : 0
                }
            }
            try CallWatcher.watch(directory, includesAttributes: true, includesProbe: true, answer) {
                try vault.remount()
            }
            isReached = calls.withLock { $0 > number }
            #expect(try vault.content("f") == [1])
            #expect(try !FileManager.default.contentsOfDirectory(atPath: directory).contains { $0.contains("probe") })
            number += 1
        }
        #expect(number >= 20)
    }

    @Test("Store-17: where directories cannot be renamed, they are made and removed under their names")
    func directoriesInPlace() throws {
        let removals = Mutex(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            if call.kind == .rename && Self.isDirectory(call.source) { return EIO }
            let isRemoval = call.kind == .remove && Self.isDirectory(call.path) && removals.withLock(\.self)
            return isRemoval ? EBUSY : 0
        }
        try CallWatcher.watch(vault.path, includesProbe: true, answer) {
            try vault.remount()
            #expect(vault.system.store.traits.renamesDirectories == false)
            let id = try vault.directory("d")
            try vault.file("f", in: id, [1])
            expect(.directoryNotEmpty) { try vault.system.remove(ascii("d"), in: .root, isDirectory: true) }
            try vault.system.remove(ascii("f"), in: id, isDirectory: false)
            // A refused removal leaves the directory usable.
            removals.withLock { $0 = true }
            expect(.resourceBusy) { try vault.system.remove(ascii("d"), in: .root, isDirectory: true) }
            removals.withLock { $0 = false }
            try vault.file("f", in: id, [2])
            try vault.system.remove(ascii("f"), in: id, isDirectory: false)
            try vault.system.remove(ascii("d"), in: .root, isDirectory: true)
        }
        #expect(try vault.names() == [])
        #expect(try !FileManager.default.contentsOfDirectory(atPath: vault.path).contains { $0.contains("tmp") })
    }

    @Test("SMB refuses to rename a directory while a file below it is open: those that are not in use are closed")
    func directoryOfOpenFiles() throws {
        let refusals = Mutex(0)
        try refusingOpenFiles {
            refusals.withLock { $0 += 1 }
        } body: {
            let id = try vault.directory("d")
            try vault.file("f", in: id, [1])
            try renameDirectory()
            #expect(refusals.withLock(\.self) == 1)
        }
    }

    @Test("such a rename waits for the last close, which the kernel notifies of after close(2) has returned")
    func directoryOfClosingFiles() throws {
        let refused = Monitor(0)
        try refusingOpenFiles {
            refused.update { $0 += 1 }
        } body: {
            let id = try vault.directory("d")
            for name in ["f", "g"] { try vault.file(name, in: id, [1]) }
            let handles = Mutex(
                try ["f", "g"].map { name in
                    let found = try vault.system.lookUp(ascii(name), in: id)
                    return try vault.system.open(
                        found.id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
                })
            let closing = try BackgroundThread { [system = vault.system] in
                for count in 2...3 {
                    _ = refused.wait(until: .now + .seconds(60)) { $0 >= count ? true : nil }
                    system.release(handles.withLock { $0.removeFirst() })
                }
            }
            defer { closing.join() }
            try renameDirectory()
        }
    }

    private func renameDirectory() throws {
        try vault.system.rename(
            ascii("d"), in: .root, to: ascii("e"), in: .root, flags: 0, for: vault.caller)
        #expect(try vault.names() == ["e"])
    }

    /// Runs `body` on a store that refuses to rename a directory with an open file below it.
    private func refusingOpenFiles(_ onRefusal: @escaping @Sendable () -> Void, body: () throws -> Void) throws {
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .rename, let source = call.source, Self.isDirectory(source),
                !source.contains("vaultfs.tmp."), Self.hasOpenFile(below: source)
            else { return 0 }
            onRefusal()
            return EACCES
        }
        try SmbStore().run(in: vault.path, answer: answer) {
            try vault.remount()
            try body()
        }
    }

    /// Returns true if this process has a file below a directory open at the server (not with O_PATH).
    private static func hasOpenFile(below directory: String) -> Bool {
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.contains { name in
            let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + name)
            let flags = Int32(name).map { fcntl($0, F_GETFL) } ?? -1
            return flags >= 0 && flags & linux_O_PATH == 0 && path?.hasPrefix(directory + "/") == true
        }
    }
}
