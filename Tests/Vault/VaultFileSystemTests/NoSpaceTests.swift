import CLinux
import FileSystem
import FoundationEssentials
import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import VaultFileSystem
@testable import VaultStore

/// Changes on a full store, which a checkpoint helps by freeing the space of the log and of deleted files.
@Suite(.timeLimit(.minutes(60))) struct NoSpaceTests {
    /// A change that may need space.
    struct Change: CustomTestStringConvertible, Sendable {
        let testDescription: String
        /// Prepares the change under an unused name. Returns a function to make and check the change.
        let prepare: @Sendable (MountedVault, String) throws -> (() throws -> Void)

        init(_ name: String, _ prepare: @escaping @Sendable (MountedVault, String) throws -> (() throws -> Void)) {
            testDescription = name
            self.prepare = prepare
        }

        /// Returns a change of an open file of 10,000 bytes. `change` returns the expected content.
        static func ofOpenFile(
            _ name: String, _ change: @escaping @Sendable (MountedVault, FileHandle) throws -> [UInt8]
        ) -> Change {
            Change(name) { vault, name in
                try vault.file(name, pattern(10_000))
                let id = try vault.system.lookUp(ascii(name), in: .root).id
                let handle = try vault.system.open(id, flags: O_RDWR, for: .root, workspace: vault.workspace)
                return {
                    let wanted = try change(vault, handle)
                    #expect(handle.file.length == UInt64(wanted.count))
                    #expect(try vault.read(handle) == Array(wanted[..<min(wanted.count, 1 << 17)]))
                    vault.system.release(handle)
                }
            }
        }

        /// Returns a change in the root.
        static func ofNames(
            _ name: String, _ change: @escaping @Sendable (MountedVault, [UInt8]) throws -> Void
        ) -> Change {
            Change(name) { vault, name in { try change(vault, ascii(name)) } }
        }
    }

    private static let old = pattern(10_000)
    private static func long(_ name: [UInt8]) -> [UInt8] { name + [UInt8](repeating: UInt8(ascii: "l"), count: 200) }

    static let changes: [Change] = [
        .ofOpenFile("an overwrite") { vault, handle in
            try vault.write(handle, pattern(5000, seed: 2), at: 100)
            return old[..<100] + pattern(5000, seed: 2) + old[5100...]
        },
        .ofOpenFile("new chunks") { vault, handle in
            try handle.file.synchronize(dataOnly: true)
            let data = pattern(100_000, seed: 2)
            var done = 0
            while done < data.count {
                done += try data[done...].withUnsafeBytes {
                    try vault.system.write(handle, $0, at: UInt64(10_000 + done), workspace: vault.workspace)
                }
            }
            return old + data
        },
        .ofOpenFile("a write behind a gap") { vault, handle in
            try vault.write(handle, [1, 2, 3], at: 50_000)
            return old + [UInt8](repeating: 0, count: 40_000) + [1, 2, 3]
        },
        .ofOpenFile("a longer length") { vault, handle in
            try Self.setLength(30_000, of: handle, in: vault)
            return old + [UInt8](repeating: 0, count: 20_000)
        },
        .ofOpenFile("a hole at the end") { vault, handle in
            try Self.setLength(3_000_000, of: handle, in: vault)
            return old + [UInt8](repeating: 0, count: 2_990_000)
        },
        .ofOpenFile("a shorter length") { vault, handle in
            try Self.setLength(5000, of: handle, in: vault)
            return Array(old[..<5000])
        },
        .ofOpenFile("allocation") { vault, handle in
            try vault.system.allocate(handle, mode: 0, range: 0..<50_000, workspace: vault.workspace)
            return old + [UInt8](repeating: 0, count: 40_000)
        },
        .ofOpenFile("a hole") { vault, handle in
            let mode = linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE
            try vault.system.allocate(handle, mode: mode, range: 100..<9000, workspace: vault.workspace)
            return old[..<100] + [UInt8](repeating: 0, count: 8900) + old[9000...]
        },
        .ofOpenFile("zeros") { vault, handle in
            let mode = linux_FALLOC_FL_ZERO_RANGE
            try vault.system.allocate(handle, mode: mode, range: 100..<20_000, workspace: vault.workspace)
            return old[..<100] + [UInt8](repeating: 0, count: 19_900)
        },
        .ofOpenFile("a truncating open") { vault, handle in
            let id = vault.system.nodes.id(of: handle.node)
            let other = try vault.system.open(id, flags: O_RDWR | O_TRUNC, for: .root, workspace: vault.workspace)
            vault.system.release(other)
            return []
        },
        .ofOpenFile("attributes of any size") { vault, handle in
            let id = vault.system.nodes.id(of: handle.node)
            for (name, size) in [("user.small", 10), ("user.large", 1000), ("security.other", 50)] {
                if name.hasPrefix("security") && geteuid() != 0 { continue }
                try vault.system.setAttribute(id, ascii(name), value: pattern(size), flags: linux_XATTR_CREATE)
                #expect(try vault.system.attribute(id, ascii(name)) == pattern(size))
            }
            return old
        },
        .ofOpenFile("mode, times and class") { vault, handle in
            let id = vault.system.nodes.id(of: handle.node)
            var changes = AttributeChanges()
            (changes.mode, changes.modificationTime) = (0o640, timespec(tv_sec: 1000, tv_nsec: 0))
            let status = try vault.system.change(id, changes, handle: nil, workspace: vault.workspace)
            #expect(status.st_mode & 0o7777 == 0o640 && status.st_mtim.tv_sec == 1000)
            try vault.system.setAttribute(id, ascii("user.vaultfs.class"), value: ascii("none"), flags: 0)
            #expect(try vault.system.attribute(id, ascii("user.vaultfs.class")) == ascii("none"))
            return old
        },
        .ofNames("a file") { vault, name in
            for name in [name, long(name)] {
                let (_, handle) = try vault.system.create(name, in: .root, mode: 0o600, flags: O_RDWR, for: .root)
                vault.system.release(handle)
                _ = try vault.system.lookUp(name, in: .root)
            }
        },
        .ofNames("a directory, and another class of it") { vault, name in
            for name in [name, long(name)] {
                let id = try vault.system.make(name, in: .root, .directory(mode: 0o700), for: .root).id
                try vault.system.setAttribute(id, ascii("user.vaultfs.class"), value: ascii("none"), flags: 0)
                #expect(try vault.names(id) == [])
            }
        },
        .ofNames("a symbolic link") { vault, name in
            for name in [name, long(name)] {
                let id = try vault.system.make(name, in: .root, .link(target: ascii("target")), for: .root).id
                #expect(try vault.system.linkTarget(id) == ascii("target"))
            }
        },
        .ofNames("a fifo, as another user") { vault, name in
            let caller = geteuid() == 0 ? Caller(uid: 1000, gid: 1000) : .root
            let object = NewObject.node(mode: S_IFIFO | 0o600, device: 0)
            let made = try vault.system.make(long(name), in: .root, object, for: caller)
            #expect(made.attributes.st_mode & S_IFMT == S_IFIFO)
        },
        Change("another name, renamed") { vault, name in
            let entry = try vault.file(name, old)
            return {
                _ = try vault.system.make(long(ascii(name)), in: .root, .hardLink(of: entry.id), for: .root)
                let (second, third) = (long(ascii(name)), long(ascii(name)) + [1])
                try vault.system.rename(second, in: .root, to: third, in: .root, flags: 0, for: .root)
                try vault.system.remove(ascii(name), in: .root, isDirectory: false)
                let found = try vault.system.lookUp(third, in: .root)
                #expect(found.id == entry.id && found.attributes.st_nlink == 1)
                #expect(try vault.content(found.id) == old)
            }
        },
        Change("a directory in the place of an empty one, and its removal") { vault, name in
            let (full, empty) = (try vault.directory(name), ascii(name + "-empty"))
            try vault.file("inside", in: full, old)
            _ = try vault.directory(name + "-empty")
            return {
                try vault.system.rename(ascii(name), in: .root, to: empty, in: .root, flags: 0, for: .root)
                #expect(try vault.names(vault.system.lookUp(empty, in: .root).id) == ["inside"])
                expect(.noSuchFileOrDirectory) { _ = try vault.system.lookUp(ascii(name), in: .root) }
                try vault.system.remove(ascii("inside"), in: full, isDirectory: false)
                try vault.system.remove(empty, in: .root, isDirectory: true)
                expect(.noSuchFileOrDirectory) { _ = try vault.system.lookUp(empty, in: .root) }
            }
        },
    ]

    private static func setLength(_ length: UInt64, of handle: FileHandle, in vault: MountedVault) throws {
        var changes = AttributeChanges()
        changes.length = length
        let id = vault.system.nodes.id(of: handle.node)
        let status = try vault.system.change(id, changes, handle: handle, workspace: vault.workspace)
        #expect(status.st_size == off_t(length))
    }

    /// Overwrites some bytes, so that the log has an entry.
    private func useLog(_ vault: MountedVault, _ used: NodeID) throws {
        let handle = try vault.system.open(used, flags: O_RDWR, for: .root, workspace: vault.workspace)
        try vault.write(handle, [7], at: 100)
        vault.system.release(handle)
        try #require(vault.system.store.log.usedSize > 0)
    }

    /// Returns a watcher of the calls that may need space: it counts them, and refuses the numbered ones.
    private func refusing(_ numbers: Range<Int>, _ calls: Monitor<Int>) -> @Sendable (WatchedCall) -> Int32 {
        { call in
            guard ![.truncate, .remove, .synchronize, .synchronizeAll].contains(call.kind) else { return 0 }
            let number = calls.access { calls in
                defer { calls += 1 }
                return calls
            }
            return numbers.contains(number) ? (number.isMultiple(of: 2) ? ENOSPC : EDQUOT) : 0
        }
    }

    @Test("A change succeeds, whichever of its calls has no space at first", arguments: changes)
    func eachCall(change: Change) throws {
        let vault = try MountedVault()
        let used = try vault.file("used", pattern(5000)).id
        for number in 0..<500 {
            let run = try change.prepare(vault, "\(number)")
            try useLog(vault, used)
            let calls = Monitor(0)
            CallWatcher.watch(vault.path, includesAttributes: true, refusing(number..<(number + 1), calls)) {
                do { try run() } catch { Issue.record(error, "call \(number)") }
            }
            if calls.access({ $0 <= number }) {
                #expect(number > 0)
                return
            }
        }
        Issue.record("a change makes 500 calls")
    }

    @Test("A full store refuses a change twice, whether there was something to free or not", arguments: [false, true])
    func full(isUsed: Bool) throws {
        let vault = try MountedVault()
        let used = try vault.file("used", pattern(5000)).id
        vault.system.store.durability.sealer.sealAll()
        if isUsed { try useLog(vault, used) }
        let refused = Monitor(0)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .link else { return 0 }
            refused.access { $0 += 1 }
            return ENOSPC
        }
        CallWatcher.watch(vault.path, answer) {
            expect(.noSpace) {
                _ = try vault.system.create(ascii("new"), in: .root, mode: 0o600, flags: O_RDWR, for: .root)
            }
        }
        #expect(refused.access { $0 } == 2)
        #expect(vault.system.store.log.usedSize == 0)
        #expect(try vault.names() == ["used"])
    }

    /// Returns the number of descriptors of the vault's deleted files.
    private func deletedFiles(_ vault: MountedVault) throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count { name in
            var status = stat()
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(name)")
            // Count by link count, because the kernel shows a path without a name for a file made with O_TMPFILE.
            guard target?.hasPrefix(vault.path + "/") == true, let number = CInt(name) else { return false }
            return fstat(number, &status) == 0 && status.st_nlink == 0
        }
    }

    @Test("A deleted file's space is free for the next change")
    func deleted() throws {
        let vault = try MountedVault()
        try useLog(vault, vault.file("used", pattern(50_000)).id)
        try vault.system.remove(ascii("used"), in: .root, isDirectory: false)
        #expect(try deletedFiles(vault) > 0)
        let wasRefused = Monitor(false)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            wasRefused.access { wasRefused in
                if wasRefused || call.kind != .link { return 0 }
                wasRefused = true
                return ENOSPC
            }
        }
        try CallWatcher.watch(vault.path, answer) { try vault.file("new", pattern(100)) }
        #expect(wasRefused.access { $0 })
        #expect(try deletedFiles(vault) == 0)
        #expect(try vault.content("new") == pattern(100))
    }

    @Test("Dirty pages that the kernel writes back are written as a whole, or the kernel gets the error")
    func writtenBack() throws {
        let vault = try MountedVault()
        let (_, handle) = try vault.system.create(ascii("f"), in: .root, mode: 0o600, flags: O_RDWR, for: .root)
        try vault.write(handle, pattern(24 * 4096))
        let data = pattern(400_000, seed: 2)
        for isOnce in [false, true] {
            let wasRefused = Monitor(false)
            // Refuses the new chunks, which follow the existing ones already written to the log.
            let answer = { @Sendable (call: WatchedCall) -> Int32 in
                guard call.kind == .write, !call.path.hasSuffix("/vaultfs.log") else { return 0 }
                return wasRefused.access { wasRefused in
                    defer { wasRefused = true }
                    return wasRefused && isOnce ? 0 : ENOSPC
                }
            }
            CallWatcher.watch(vault.path, answer) {
                do throws(StoreError) {
                    let count = try data.withBytes { (data) throws(StoreError) in
                        try vault.system.write(handle, data, at: 0, isWriteBack: true, workspace: vault.workspace)
                    }
                    #expect(isOnce && count == data.count)
                } catch {
                    #expect(!isOnce && error.isNoSpace)
                }
            }
        }
        #expect(handle.file.length == 400_000)
        vault.system.release(handle)
    }
}
