import CLinux
import FileSystem
import Foundation
import Glibc
import LinuxSystem
import Locking
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultFileSystem
@testable import VaultStore

/// Files without a header and directories without a record, as left by a power cut (FileFormat: Store-38).
@Suite(.timeLimit(.minutes(60))) struct UncleanEndTests {
    private let vault: MountedVault
    private let root: Descriptor
    private var lockFile: String { vault.path + "/vaultfs.lock" }

    init() throws {
        vault = try MountedVault()
        root = try Descriptor(path: FilePath(bytes: ascii(vault.path)), flags: O_RDONLY | O_DIRECTORY)
    }

    /// Ends the mount that made the vault, and leaves the lock file of a kill or of a clean end.
    private func end(cleanly: Bool = false) throws {
        vault.system.shutDown()
        let note = WriterRecord(
            id: "1", boot: "another", process: ProcessIdentity(processID: 1, start: 1, namespace: 1), host: "here")
        try Bytes.put(cleanly ? ascii("\n") : note.bytes, at: lockFile)
    }

    /// Returns the vault as the next mount sees it, without the background thread.
    private func mount(isReadOnly: Bool = false) throws -> VaultFileSystem {
        let hold = try #require(
            try WriterLock.acquire(root: root, isReadOnly ? .shared : .exclusive, wait: .seconds(60), isRemote: false))
        let store = try Store(
            root: FileDescriptor(rawValue: root.fd), keyRing: vault.keyRing, cacheSize: 1 << 20, isReadOnly: isReadOnly,
            writerLock: hold)
        return try VaultFileSystem(store: store)
    }

    private func content(_ name: String, in parent: NodeID = .root, _ system: VaultFileSystem) throws -> [UInt8] {
        let entry = try system.lookUp(ascii(name), in: parent)
        defer { system.forget(entry.id, count: 1) }
        let handle = try system.open(entry.id, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace)
        defer { system.release(handle) }
        return try vault.read(handle, system)
    }

    private func names(_ directory: NodeID, _ system: VaultFileSystem) throws -> Int {
        var count = 0
        try system.list(try system.openDirectory(directory), from: 0, withAttributes: false) { _ in
            count += 1
            return true
        }
        // Leave out `.` and `..`.
        return count - 2
    }

    private func subpaths(_ path: String) throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: path)
    }

    /// Makes two files, one of them cut to `size` bytes. Returns their backing paths.
    private func makeFiles(_ size: Int) throws -> (cut: String, whole: String) {
        try vault.file("cut", pattern(500))
        try vault.file("whole", pattern(500))
        let paths = (try vault.backing("cut"), try vault.backing("whole"))
        try end()
        try #require(truncate(paths.0, off_t(size)) == 0)
        return paths
    }

    @Test("Store-38: a file without a header opens as an empty file, and can be written", arguments: [0, 1, 127])
    func opened(size: Int) throws {
        let (cut, _) = try makeFiles(size)
        try #require(chmod(cut, 0o440) == 0)
        let times = [timespec(tv_sec: 1_000_000_000, tv_nsec: 0), timespec(tv_sec: 1_100_000_000, tv_nsec: 7)]
        try #require(utimensat(AT_FDCWD, cut, times, 0) == 0)
        let lines = Mutex<[String]>([])
        let system = try mount()
        system.store.reportProblems { line in lines.withLock { $0.append(line) } }
        #expect(try content("cut", system) == [])
        #expect(try content("whole", system) == pattern(500))
        var status = stat()
        try #require(stat(cut, &status) == 0)
        #expect(status.st_size == 128 && status.st_mode & 0o7777 == 0o440)
        #expect(status.st_mtim.tv_sec == 1_100_000_000 && status.st_mtim.tv_nsec == 7)
        #expect(system.statistics().completedObjects == 1 && system.statistics().isCompleting == true)
        let entry = try #require(cut.split(separator: "/").last)
        #expect(
            lines.withLock { $0 } == [
                "a file without a header was completed as an empty one after an unclean end: \(entry)"
            ])
        let found = try system.lookUp(ascii("cut"), in: .root)
        try #require(chmod(cut, 0o640) == 0)
        let handle = try system.open(found.id, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        let written = try pattern(3000).withUnsafeBytes {
            try system.write(handle, $0, at: 0, workspace: vault.workspace)
        }
        #expect(written == 3000)
        system.release(handle)
        system.shutDown()
        #expect(try content("cut", try mount()) == pattern(3000))
    }

    @Test("Store-38: a file whose first bytes are zero opens as an empty file", arguments: [128, 5000])
    func zeros(size: Int) throws {
        let (cut, _) = try makeFiles(0)
        try #require(truncate(cut, off_t(size)) == 0)
        let system = try mount()
        #expect(try content("cut", system) == [])
        system.completeEverything()
        #expect(system.statistics().completedObjects == 1)
        system.shutDown()
        #expect(try content("cut", try mount()) == [])
    }

    @Test("Store-30: the end counts as a clean one only when everything is durable, also names")
    func cleanEnd() throws {
        try vault.file("old", pattern(10))
        try end(cleanly: true)
        let system = try mount()
        let log = try CallLog(of: vault.path) {
            for name in ["new", "other"] {
                let (_, handle) = try system.create(
                    ascii(name), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
                _ = try pattern(50).withUnsafeBytes {
                    try system.write(handle, $0, at: 0, workspace: vault.workspace)
                }
                system.release(handle)
            }
            try system.rename(ascii("new"), in: .root, to: ascii("old"), in: .root, flags: 0, for: vault.caller)
            system.shutDown()
        }
        let last = try #require(log.changes.last { $0.call.path == lockFile && $0.call.kind == .write })
        #expect(last.unsynchronized.subtracting([lockFile]) == [])
    }

    @Test("the walk leaves the end of a file alone that was made, or emptied, since the mount began")
    func madeMeanwhile() throws {
        try vault.file("emptied", pattern(500))
        try end()
        let system = try mount()
        let id = try system.lookUp(ascii("emptied"), in: .root).id
        let emptied = try system.open(id, flags: O_RDWR | O_TRUNC, for: vault.caller, workspace: vault.workspace)
        let (_, made) = try system.create(
            ascii("made"), in: .root, mode: 0o600, flags: O_RDWR, for: vault.caller)
        for handle in [emptied, made] {
            let count = try pattern(9000).withUnsafeBytes {
                try system.write(handle, $0, at: 0, workspace: vault.workspace)
            }
            #expect(count == 9000)
        }
        system.completeEverything()
        #expect(system.statistics().isCompleting == false)
        for handle in [emptied, made] {
            let header = try FileHeader.parse(handle.file.reader.read(at: 0, count: FileHeader.size))
            #expect(!header.isSealed)
            #expect(try vault.read(handle, system) == pattern(9000))
        }
        system.shutDown()
    }

    @Test("a directory without a record is completed when it is listed, but only if it is empty")
    func directories() throws {
        for (name, isFilled) in [("none", false), ("short", false), ("filled", true)] {
            let directory = try vault.directory(name)
            if isFilled { try vault.file("inside", in: directory, pattern(10)) }
        }
        let paths = try ["none", "short", "filled"].map { try vault.backing($0) }
        try end()
        for path in [paths[0], paths[2]] { try #require(unlink(path + "/vaultfs.dir") == 0) }
        try #require(truncate(paths[1] + "/vaultfs.dir", 63) == 0)
        try Bytes.put([1], at: paths[1] + "/vaultfs.tmp.0123")
        let system = try mount()
        for name in ["none", "short"] {
            let id = try system.lookUp(ascii(name), in: .root).id
            #expect(try names(id, system) == 0)
            let (_, handle) = try system.create(
                ascii("new"), in: id, mode: 0o600, flags: O_RDWR, for: vault.caller)
            system.release(handle)
        }
        expect(.ioError) { _ = try names(try system.lookUp(ascii("filled"), in: .root).id, system) }
        #expect(system.statistics().completedObjects == 2)
        system.completeEverything()
        system.shutDown()
        #expect(try Bytes.of(lockFile) == ascii("\n"))
        #expect(access(paths[2] + "/vaultfs.dir", F_OK) != 0)
        let next = try mount()
        #expect(try content("new", in: next.lookUp(ascii("short"), in: .root).id, next) == [])
    }

    @Test("a file without a header stays an error after a clean end or read-only", arguments: [true, false])
    func refused(cleanly: Bool) throws {
        let (cut, _) = try makeFiles(0)
        if cleanly { try Bytes.put(ascii("\n"), at: lockFile) }
        let system = try mount(isReadOnly: !cleanly)
        expect(.ioError) { _ = try content("cut", system) }
        system.completeEverything()
        expect(.ioError) { _ = try content("cut", system) }
        system.shutDown()
        #expect(try Bytes.of(cut).isEmpty)
    }

    @Test("the walk completes unopened objects at any depth, in their directory's class, and makes the end clean")
    func walk() throws {
        let outer = try vault.directory("outer")
        let inner = try vault.directory("inner", in: outer)
        try vault.system.setAttribute(inner, ascii("user.vaultfs.class"), value: ascii("none"), flags: 0)
        let long = String(repeating: "l", count: 200)
        for name in ["one", long] { try vault.file(name, in: inner, pattern(10)) }
        _ = try vault.directory("empty", in: inner)
        let innerPath = try vault.backing("outer")
        let innerNames = try subpaths(innerPath).filter { !$0.hasSuffix("vaultfs.dir") && !$0.hasSuffix(".name") }
        try end()
        for path in innerNames where access(innerPath + "/" + path + "/.", F_OK) != 0 {
            try #require(truncate(innerPath + "/" + path, 5) == 0)
        }
        for path in try subpaths(innerPath) where path.split(separator: "/").count == 3 && path.hasSuffix("vaultfs.dir")
        {
            try #require(unlink(innerPath + "/" + path) == 0)
        }
        let system = try mount()
        system.completeEverything()
        #expect(system.statistics().completedObjects == 3 && system.statistics().isCompleting == false)
        let found = try system.lookUp(ascii("inner"), in: system.lookUp(ascii("outer"), in: .root).id).id
        for name in ["one", long] {
            #expect(try content(name, in: found, system) == [])
            let id = try system.lookUp(ascii(name), in: found).id
            #expect(try system.attribute(id, ascii("user.vaultfs.class")) == ascii("none"))
        }
        let empty = try system.lookUp(ascii("empty"), in: found).id
        #expect(try system.attribute(empty, ascii("user.vaultfs.class")) == ascii("none"))
        system.shutDown()
        #expect(try Bytes.of(lockFile) == ascii("\n"))
    }

    @Test("foreign files, and files with a header that is not zero, stay as they are")
    func foreign() throws {
        let (_, whole) = try makeFiles(10)
        let kept = [
            ("desktop.ini", [UInt8](repeating: 1, count: 20)), ("vaultfs.unknown", []),
            (String(repeating: "A", count: 43), []), ("vaultfs.tmp.77", [2]),
        ]
        for (name, bytes) in kept.dropLast() { try Bytes.put(bytes, at: vault.path + "/" + name) }
        try #require(mkdir(vault.path + "/somebody's", 0o700) == 0)
        try Bytes.put([UInt8](repeating: 1, count: 128), at: whole)
        let system = try mount()
        system.completeEverything()
        #expect(system.statistics().completedObjects == 1)
        for (name, bytes) in kept.dropLast() { #expect(try Bytes.of(vault.path + "/" + name) == bytes) }
        #expect(try subpaths(vault.path + "/somebody's") == [])
        expect(.ioError) { _ = try content("whole", system) }
        system.shutDown()
        #expect(try Bytes.of(lockFile) == ascii("\n"))
    }

    @Test("the next mount starts the walk again if it did not run or was stopped")
    func earlyEnd() throws {
        let (cut, _) = try makeFiles(0)
        // An import, for example, opens the vault without the walk's thread.
        try mount().shutDown()
        #expect(try Bytes.of(lockFile) == ascii("incomplete\n"))
        let stopped = try mount()
        stopped.store.completion?.stop()
        stopped.completeEverything()
        stopped.shutDown()
        #expect(try Bytes.of(lockFile) == ascii("incomplete\n"))
        #expect(try Bytes.of(cut).isEmpty)
        let system = try mount()
        system.completeEverything()
        expect(.ioError) {
            // The walk has completed all remains of the unclean end, so another cut file is damage.
            try #require(truncate(cut, 0) == 0)
            _ = try content("cut", system)
        }
        system.shutDown()
        #expect(try Bytes.of(lockFile) == ascii("\n"))
    }

    @Test("the walk pauses while the vault is locked, continues after it, and ends at once at an unmount")
    func locked() throws {
        let (cut, _) = try makeFiles(0)
        for isUnmounted in [true, false] {
            let system = try mount()
            system.gate.enter(.locked)
            _ = system.forgetKeys(everything: false)
            expect(Errno(rawValue: ENOKEY)) { _ = try content("cut", system) }
            let walking = try BackgroundThread { system.completeEverything() }
            if !isUnmounted {
                system.gate.enter(.unlocked)
                // The walk needs keys, so it waits for them and tries again.
                #expect(try Bytes.of(cut).isEmpty)
                try system.restoreKeys(vault.masterKey)
                try poll("the walk") { system.statistics().isCompleting == false }
            }
            system.shutDown()
            walking.join()
            try vault.keyRing.restore(masterKey: vault.masterKey)
            #expect(try Bytes.of(cut).count == (isUnmounted ? 0 : 128))
        }
        #expect(try Bytes.of(lockFile) == ascii("\n"))
    }

    @Test("a file without a header can still be unlinked, truncated and replaced by a rename")
    func others() throws {
        for name in ["unlinked", "truncated", "replaced", "new"] { try vault.file(name, pattern(100)) }
        let paths = try ["unlinked", "truncated", "replaced"].map { try vault.backing($0) }
        try end()
        for path in paths { try #require(truncate(path, 0) == 0) }
        let system = try mount()
        try system.remove(ascii("unlinked"), in: .root, isDirectory: false)
        try system.rename(ascii("new"), in: .root, to: ascii("replaced"), in: .root, flags: 0, for: vault.caller)
        let id = try system.lookUp(ascii("truncated"), in: .root).id
        let handle = try system.open(id, flags: O_RDWR | O_TRUNC, for: vault.caller, workspace: vault.workspace)
        #expect(handle.file.length == 0)
        system.release(handle)
        #expect(try content("replaced", system) == pattern(100))
        system.shutDown()
    }

    @Test("the walk runs again after a move, so it misses nothing")
    func moved() throws {
        let (_, _) = try makeFiles(0)
        let system = try mount()
        let completion = try #require(system.store.completion)
        try system.rename(ascii("whole"), in: .root, to: ascii("other"), in: .root, flags: 0, for: vault.caller)
        #expect(completion.moves == 1)
        try system.rename(ascii("cut"), in: .root, to: ascii("cut2"), in: .root, flags: 0, for: vault.caller)
        #expect(completion.moves == 2)
        try system.rename(
            ascii("other"), in: .root, to: ascii("cut2"), in: .root, flags: linux_RENAME_EXCHANGE, for: vault.caller)
        #expect(completion.moves == 3)
        let cut = try system.lookUp(ascii("other"), in: .root).id
        _ = try system.make(ascii("link"), in: .root, .hardLink(of: cut), for: vault.caller)
        #expect(completion.moves == 4)
        try completion.countMove { () throws(StoreError) in #expect(!completion.finish(ifStill: 4)) }
        #expect(!completion.finish(ifStill: 4))
        system.completeEverything()
        #expect(!completion.isActive)
        system.shutDown()
    }

    @Test(
        "a directory that denies access to its owner does not keep the end unclean for ever",
        .enabled(if: geteuid() == 0))
    func closedDirectory() throws {
        _ = try vault.directory("closed")
        let path = try vault.backing("closed")
        try end()
        try #require(chmod(vault.path, 0o755) == 0 && chown(vault.path, 65534, 65534) == 0)
        try #require(chmod(path, 0) == 0)
        let system = try mount()
        let done = Monitor(false)
        let thread = try BackgroundThread {
            // A new thread may have another user's rights.
            _ = linux_become_user_on_thread(65534, 65534)
            system.completeEverything()
            done.update { $0 = true }
        }
        done.wait { $0 ? () : nil }
        thread.join()
        #expect(try #require(system.store.completion).isActive == false)
        try #require(chown(vault.path, 0, 0) == 0)
        system.shutDown()
    }

    @Test("an object opened by many threads at once, and by the walk, gets one header")
    func atOnce() throws {
        let names = (0..<60).map { "file\($0)" }
        for name in names { try vault.file(name, pattern(10)) }
        let paths = try names.map { try vault.backing($0) }
        try end()
        for path in paths { try #require(truncate(path, 3) == 0) }
        let system = try mount()
        let threads = try [0, 1].map { order in
            try BackgroundThread { [caller = vault.caller] in
                for name in order == 0 ? names : names.reversed() {
                    do {
                        let workspace = try Workspace(layout: system.store.layout)
                        let id = try system.lookUp(ascii(name), in: .root).id
                        let flags = order == 0 ? O_RDWR | O_TRUNC : O_RDWR
                        let handle = try system.open(id, flags: flags, for: caller, workspace: workspace)
                        _ = try [UInt8(7)].withUnsafeBytes {
                            try system.write(handle, $0, at: 0, workspace: workspace)
                        }
                        system.release(handle)
                    } catch {
                        Issue.record(error)
                    }
                }
            }
        }
        system.completeEverything()
        for thread in threads { thread.join() }
        system.shutDown()
        let next = try mount()
        for name in names { #expect(try content(name, next) == [7]) }
        next.shutDown()
    }
}
