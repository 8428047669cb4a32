import CLinux
import Foundation
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// Changes of a slot's secret, stopped at every step.
@Suite(.timeLimit(.minutes(60))) struct ConfigurationReplacementTests {
    typealias Step = ConfigurationReplacement.Step

    private let vault: SlotVault
    private let newSecret: SlotSecret

    init() throws {
        vault = try SlotVault()
        newSecret = try SlotVault.keyfile(2)
    }

    /// Changes the secret of the one slot to the new one.
    private func change(
        onReady: () throws(VaultError) -> Void = {}, before: @escaping (Step) throws(StoreError) -> Void
    ) throws {
        let directory = try vault.open()
        let masterKey = try directory.openSlot(with: vault.secret).masterKey
        let change = try directory.configuration.replacingSlot(
            1, by: SlotRequest(secret: newSecret), created: UtcTime.now(), masterKey: masterKey)
        var replacement = try ConfigurationReplacement(of: directory, wait: .seconds(60))
        replacement.before = before
        try replacement.put(change.checkedBytes(masterKey: masterKey), onReady: onReady)
    }

    private func expect(
        new isNew: Bool, at path: FilePath? = nil, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        #expect(try vault.opens(with: vault.secret, at: path) == !isNew, sourceLocation: sourceLocation)
        #expect(try vault.opens(with: newSecret, at: path) == isNew, sourceLocation: sourceLocation)
    }

    @Test("whatever the moment a copy is made, it opens with the old secret or the new")
    func whateverMomentCopyIsMade() throws {
        var seen: [Step] = []
        let copies = DirectoryCopies(of: vault.path.string)
        try change { step in
            seen.append(step)
            do { try copies.take() } catch { Issue.record(error) }
        }
        #expect(seen == Step.allCases)
        for (step, copy) in zip(seen, copies.paths) { try expect(new: step == .synchronize, at: FilePath(copy)) }
        try expect(new: true)
    }

    @Test("files of killed replacements are removed, but not that of the next one, which may have begun")
    func leftovers() throws {
        let (killed, next) = ("vaultfs.tmp.json-1", "vaultfs.tmp.json-2")
        func make(_ name: String) throws { try Data().write(to: URL(filePath: "\(vault.path)/\(name)")) }
        try make(killed)
        try change { step in if step == .rename { do { try make(next) } catch { Issue.record(error) } } }
        #expect(try vault.entries.filter { $0.contains(".tmp.") } == [next])
    }

    @Test("before each call that changes anything, it opens with the old secret or the new")
    func beforeEachCallThatChanges() throws {
        let copies = DirectoryCopies(of: vault.path.string)
        try copies.takeBeforeEachChange { try change { _ in } }
        #expect(copies.paths.count > 2)
        for copy in copies.paths { try expect(new: false, at: FilePath(copy)) }
        try expect(new: true)
    }

    @Test("a write into the same file by a process without the lock is not lost")
    func writeIntoSameFile() throws {
        let path = vault.path.appending("vaultfs.json").string
        let directory = try vault.open()
        let masterKey = try directory.openSlot(with: vault.secret).masterKey
        let other = try directory.configuration.adding(
            SlotRequest(secret: SlotVault.keyfile(3)), created: UtcTime.now(), masterKey: masterKey)
        let bytes = try Data(other.checkedBytes(masterKey: masterKey))
        let error = #expect(throws: VaultError.self) {
            try change { step in
                guard step == .readBack else { return }
                do { try bytes.write(to: URL(fileURLWithPath: path)) } catch { Issue.record(error) }
            }
        }
        #expect(error?.description.contains("another program has replaced vaultfs.json") == true)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == bytes)
    }

    @Test("a step that fails leaves a vault that opens, and nothing else", arguments: Step.allCases)
    func stepThatFailsLeavesVault(step: Step) throws {
        let error = #expect(throws: VaultError.self) {
            try change { (now) throws(StoreError) in
                if now == step { throw .system(.noSpace) }
            }
        }
        #expect(error?.description.contains("vaultfs.json: No space left on device") == true)
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: step == .synchronize)
    }

    @Test("nothing has changed if somebody could not be told")
    func notTold() throws {
        #expect(throws: VaultError.refused("no")) {
            try change(onReady: { () throws(VaultError) in throw .refused("no") }, before: { _ in })
        }
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: false)
    }

    @Test("Store-16: a mount leaves the temporary file, which may be all that opens the vault")
    func mountThatSweeps() throws {
        try change { [vault] step in
            guard step == .rename else { return }
            do {
                let directory = try vault.open()
                let masterKey = try directory.openSlot(with: vault.secret).masterKey
                let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
                let store = try Store(root: directory.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false)
                let pin = try Descriptor(path: vault.path, flags: linux_O_PATH)
                try Data().write(to: URL(filePath: vault.path.appending("vaultfs.tmp.1").string))
                try OpenDirectory.open(pin, isRoot: true, in: store).sweep()
                #expect(try vault.entries.filter { $0.hasPrefix("vaultfs.tmp.") }.count == 1)
            } catch { Issue.record(error) }
        }
        try expect(new: true)
    }

    @Test("Store-21: a store that refuses to replace an open file, and then removes it, gets the new one (SMB)")
    func refusingStore() throws {
        let store = SmbStore()
        try store.run(in: vault.path.string) { try change { _ in } }
        // The only refusal is that of the probe. The store's locks are mandatory, but the locked file could be read.
        #expect(store.refusals == 1)
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: true)
    }

    @Test("Store-21: before each call, the old file or the new one is there, or the error of an open says where")
    func killsOnRefusingStore() throws {
        let path = vault.path.appending("vaultfs.json")
        let other = Mutex<Descriptor?>(try Descriptor(path: path, flags: O_RDONLY))
        let copies = DirectoryCopies(of: vault.path.string)
        let renames = Mutex(0)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.isChange else { return 0 }
            do { try copies.take() } catch { Issue.record(error) }
            if call.kind == .rename, call.path == path.string {
                // Another process keeps the file open until the second try.
                let number = renames.withLock { renames in
                    renames += 1
                    return renames
                }
                if number == 2 { other.withLock { $0 = nil } }
            }
            return 0
        }
        try SmbStore().run(in: vault.path.string, answer: answer) { try change { _ in } }
        try expect(new: true)
        let missing = copies.paths.map { FilePath($0) }.filter {
            !FileManager.default.fileExists(atPath: $0.appending("vaultfs.json").string)
        }
        #expect(!missing.isEmpty)
        for path in missing {
            try putBack(at: path)
            try expect(new: true, at: path)
        }
    }

    /// Follows the advice in the error of an open.
    private func putBack(at path: FilePath) throws {
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(path) }
        let named = try #require(error?.description.firstMatch(of: /is ([^ ]*) beside it, so rename that to/))
        #expect(rename(path.appending(String(named.1)).string, path.appending("vaultfs.json").string) == 0)
    }

    @Test("Store-21: if another process keeps the old file open there, an error says where the new one is")
    func openElsewhere() throws {
        let other = try Descriptor(path: vault.path.appending("vaultfs.json"), flags: O_RDONLY)
        let error = try SmbStore().run(in: vault.path.string) {
            #expect(throws: VaultError.self) { try change { _ in } }
        }
        withExtendedLifetime(other) {}
        let kept = try #require(vault.entries.first { $0.hasPrefix("vaultfs.json.kept-") })
        #expect(error?.description.contains("its new version is \(kept): rename that to vaultfs.json") == true)
        #expect(try vault.entries == ["vaultfs.dir", kept, "vaultfs.lock"])
        try putBack(at: vault.path)
        try expect(new: true)
    }

    @Test("a rename that fails for another reason leaves the old file alone", arguments: [EACCES, EIO])
    func renameThatFails(errno: Int32) throws {
        let calls = Mutex(0)
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            guard call.kind == .rename, call.path.hasSuffix("/vaultfs.json") else { return 0 }
            return calls.withLock { calls in
                calls += 1
                return errno
            }
        }
        CallWatcher.watch(vault.path.string, answer) {
            #expect(throws: VaultError.self) { try change { _ in } }
        }
        #expect((calls.withLock(\.self) > 1) == (errno == EACCES))
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: false)
    }

    @Test("a file that somebody else has put there meanwhile is not overwritten")
    func fileThatSomebodyElse() throws {
        let json = vault.path.appending("vaultfs.json").string
        let error = #expect(throws: VaultError.self) {
            try change { step in
                guard step == .readBack else { return }
                _ = try? FileManager.default.copyItem(atPath: json, toPath: json + ".sync")
                rename(json + ".sync", json)
            }
        }
        #expect(error?.description.contains("another program has replaced vaultfs.json") == true)
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: false)
    }

    @Test("Store-21: what the store does not give back is not put in place")
    func whatStoreDoesNotGive() throws {
        #expect(throws: VaultError.self) {
            try change { step in
                guard step == .readBack else { return }
                for entry in (try? vault.entries) ?? [] where entry.hasPrefix("vaultfs.tmp.") {
                    truncate(vault.path.appending(entry).string, 100)
                }
            }
        }
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        try expect(new: false)
    }

    @Test("a window that is started: whatever the moment a copy is made, it has started or not, and the slot opens")
    func windowThatIsStarted() throws {
        try #expect(
            vault.editor().change(
                #require(try vault.open().configuration.slot(1)), toWindow: PlayWindow(seconds: 60), isForced: true
            )
            .window != nil)
        let directory = try vault.open()
        let key = try KeyDerivation.configurationKey(
            master: directory.openSlot(with: vault.secret).masterKey, vault: directory.configuration.vault)
        let window = try PlayWindow(seconds: 60).seeing(UtcTime.now())
        let change = try directory.configuration.settingWindow(of: 1, to: window, configurationKey: key)
        var replacement = try ConfigurationReplacement(of: directory, wait: .seconds(60))
        var seen: [Step] = []
        let copies = DirectoryCopies(of: vault.path.string)
        replacement.before = { step in
            seen.append(step)
            do { try copies.take() } catch { Issue.record(error) }
        }
        try replacement.put(change.checkedBytes(configurationKey: key)) {}
        #expect(seen == Step.allCases)
        for (step, path) in zip(seen, copies.paths) {
            let copy = FilePath(path)
            #expect(try vault.opens(with: vault.secret, at: copy))
            let expected = step == .synchronize ? window : try PlayWindow(seconds: 60)
            #expect(try VaultDirectory.open(copy).configuration.slot(1)?.window == expected)
        }
    }

    @Test("the time in a window only goes forward, and without a window nothing is written")
    func timeInWindowOnlyGoes() throws {
        let directory = try vault.open()
        let key = try KeyDerivation.configurationKey(
            master: directory.openSlot(with: vault.secret).masterKey, vault: directory.configuration.vault)
        func note(_ time: String) throws -> VaultConfiguration {
            try directory.saveTime(time, inWindowOf: 1, configurationKey: key, wait: .seconds(60))
        }
        #expect(try note("2030-01-01T00:00:00Z").generation == 1)
        _ = try vault.editor().change(
            #require(try vault.open().configuration.slot(1)), toWindow: PlayWindow(seconds: 60), isForced: true)
        #expect(try note("2030-01-01T00:00:00Z").slot(1)?.window?.started == "2030-01-01T00:00:00Z")
        #expect(try note("2030-01-01T00:00:10Z").slot(1)?.window?.seen == "2030-01-01T00:00:10Z")
        #expect(try note("2030-01-01T00:00:09Z").generation == 4)
        #expect(try note("2030-01-01T00:00:09Z") == vault.open().configuration)
        #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        let other = try KeyDerivation.configurationKey(
            master: .random(count: 32), vault: directory.configuration.vault)
        #expect(throws: VaultError.self) {
            try directory.saveTime("2031-01-01T00:00:00Z", inWindowOf: 1, configurationKey: other, wait: .seconds(60))
        }
    }

    @Test("the mode stays")
    func modeStays() throws {
        let json = vault.path.appending("vaultfs.json").string
        #expect(chmod(json, 0o640) == 0)
        try change { _ in }
        var status = stat()
        #expect(stat(json, &status) == 0 && status.st_mode & 0o7777 == 0o640)
    }

    @Test("Store-21: extended attributes stay, an access control list among them")
    func extendedAttributesStay() throws {
        let json = vault.path.appending("vaultfs.json").string
        // acl(5): rw for the owner, r for user 1234, nothing for others (linux/posix_acl_xattr.h).
        let acl: [UInt8] = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 0xD2, 4, 0, 0, 4, 0, 0, 0, 255, 255, 255, 255,
            16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ]
        let attributes = ["user.note": Array("mine".utf8), "system.posix_acl_access": acl]
        for (name, value) in attributes { #expect(linux_setxattr(json, name, value, value.count, 0) == 0) }
        try change { _ in }
        for (name, value) in attributes {
            var found = [UInt8](repeating: 0, count: 100)
            let count = linux_getxattr(json, name, &found, found.count)
            #expect(Array(found.prefix(max(0, count))) == value, "\(name)")
        }
        var status = stat()
        #expect(stat(json, &status) == 0 && status.st_mode & 0o7777 == 0o640)
    }

    @Test("Store-16: what a change that was killed has left goes with the next, and nothing else does")
    func whatChangeThatWasKilled() throws {
        var (left, bytes) = ("", Data())
        try change { [vault] step in
            guard step == .rename else { return }
            do {
                left = try #require(vault.entries.first { $0.hasPrefix("vaultfs.tmp.") })
                bytes = try Data(contentsOf: URL(filePath: vault.path.appending(left).string))
            } catch { Issue.record(error) }
        }
        // SIGKILL leaves such files before a rename, and during a write.
        try bytes.write(to: URL(filePath: vault.path.appending(left + "0").string))
        try Data("half".utf8).write(to: URL(filePath: vault.path.appending(left + "1").string))
        // These belong to a running mount, or do not have the name of a temporary file.
        for name in ["vaultfs.tmp.0123456789abcdef", "vaultfs.tmp", "vaultfs.jsonx"] {
            try Data().write(to: URL(filePath: vault.path.appending(name).string))
        }
        #expect(try vault.entries.contains(left + "0") && vault.entries.contains(left + "1"))
        let directory = try vault.open()
        try SlotEditor(directory, masterKey: directory.openSlot(with: newSecret).masterKey)
            .add(SlotRequest(secret: vault.secret))
        #expect(
            try vault.entries == [
                "vaultfs.dir", "vaultfs.json", "vaultfs.jsonx", "vaultfs.lock", "vaultfs.tmp",
                "vaultfs.tmp.0123456789abcdef",
            ])
    }

    @Test("the owner stays if root changes another user's vault", .enabled(if: geteuid() == 0))
    func owner() throws {
        let json = vault.path.appending("vaultfs.json").string
        #expect(chown(json, 12345, 54321) == 0)
        try change { _ in }
        var status = stat()
        #expect(stat(json, &status) == 0 && status.st_uid == 12345 && status.st_gid == 54321)
        #expect(status.st_mode & 0o7777 == 0o600)
    }

    @Test("ENOSPC: a full disk keeps the old slots and no temporary file", .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let vault = try SlotVault(in: FilePath(disk.path))
        let editor = try vault.editor()
        for space in [0, 4096] {
            let filler = try disk.fill(leaving: space)
            try filler.extend()
            let error = #expect(throws: VaultError.self) {
                try editor.add(SlotRequest(secret: newSecret, label: String(repeating: "x", count: 8192)))
            }
            #expect(error?.description.hasSuffix("vaultfs.json: No space left on device") == true)
            #expect(try vault.entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
            #expect(try vault.opens(with: vault.secret))
            try filler.descriptor.truncate(to: 0)
        }
        try editor.add(SlotRequest(secret: newSecret))
        #expect(try vault.opens(with: newSecret))
    }
}
