import FileSystem
import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import VaultStore

/// The times of a file with changes in the redo log (FileFormat: Log-9), without a mount.
@Suite struct RedoLogTimeTests {
    /// The file's length: one chunk.
    private static let c = 4096
    private let vault: TestStore
    private let store: Store
    private let file: EncryptedFile

    init() throws {
        vault = try TestStore()
        try vault.make(pattern(Self.c))
        store = try vault.open()
        file = try vault.reopen(in: store)
    }

    @Test("Log-9: the times of a file are those of its last change, before and after a checkpoint")
    func times() throws {
        let past = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 1000, tv_nsec: 5)]
        #expect(futimens(file.reader.fd, past) == 0)
        try file.put([1], at: 0)
        let backing = try file.reader.status()
        let shown = file.parts.log.shownStatus(backing).st_mtim
        #expect(backing.st_mtim.tv_sec == 1000 && shown.tv_sec > 1_000_000)
        try store.log.checkpoint(.due)
        let after = try file.reader.status().st_mtim
        #expect((after.tv_sec, after.tv_nsec) == (shown.tv_sec, shown.tv_nsec))
    }

    /// Returns the backing file's modification time, and the one shown to programs, in seconds.
    private func modified(_ file: EncryptedFile) throws -> [Int] {
        let backing = try file.reader.status()
        return [backing.st_mtim.tv_sec, file.parts.log.shownStatus(backing).st_mtim.tv_sec]
    }

    private func changes(modified seconds: Int) -> AttributeChanges {
        var changes = AttributeChanges()
        (changes.modificationTime, changes.mode) = (timespec(tv_sec: seconds, tv_nsec: 5), 0o600)
        return changes
    }

    @Test(
        "Log-9: a file gets its last time in the store with its last content, not before",
        arguments: ["checkpoint", "fsync", "kill"])
    func setTime(_ end: String) throws {
        let old = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 1000, tv_nsec: 5)]
        #expect(futimens(file.reader.fd, old) == 0)
        try file.put([1], at: 0)
        var mode = AttributeChanges()
        mode.mode = 0o640
        try file.set(mode)
        #expect(try modified(file)[0] == 1000 && modified(file)[1] > 1_000_000)
        let change = changes(modified: 500)
        try file.set(change)
        #expect(try modified(file) == [1000, 500])
        switch end {
        case "checkpoint": try store.log.checkpoint(.due)
        case "fsync": try file.synchronize(dataOnly: false)
        default:
            try file.synchronize(dataOnly: true)
            #expect(try modified(file) == [1000, 500])
            // The program's time was not made durable, so the recovery gives the changed content a changed time.
            let recovered = try vault.reopen(in: try vault.open())
            #expect(try modified(recovered)[0] > 1_000_000 && recovered.contents()[0] == 1)
            return
        }
        #expect(try !file.isLogged && modified(file) == [500, 500])
        #expect(try file.reader.status().st_mode & 0o777 == 0o600)
    }

    @Test("Log-9: a time that is set while a checkpoint puts the content in place, and one that a write follows")
    func setTimeBesideCheckpoint() throws {
        try file.put([1], at: 0)
        let change = changes(modified: 500)
        let isSet = Mutex(false)
        let answer = { @Sendable [file, vault] (call: WatchedCall) -> Int32 in
            guard call.kind == .synchronize, call.path == vault.path("file") else { return 0 }
            isSet.withLock { $0 = true }
            try? file.set(change)
            return 0
        }
        try CallWatcher.watch(vault.path, answer) { try store.log.checkpoint(.due) }
        #expect(try isSet.withLock { $0 } && !file.isLogged && modified(file) == [500, 500])
        try file.put([2], at: 0)
        try file.set(change)
        try file.put([3], at: 0)
        try store.log.checkpoint(.due)
        #expect(try modified(file)[0] > 1_000_000)
    }

    @Test(
        "Log-9: a change after a time that was set to the future gives the present time, also one that keeps the content",
        arguments: [true, false])
    func changeAfterFutureTime(isLogged: Bool) throws {
        let future = 4_000_000_000
        if isLogged { try file.put([1], at: 0) }
        let change = changes(modified: future)
        try file.set(change)
        #expect(try modified(file)[1] == future)
        if isLogged {
            try file.setLength(UInt64(Self.c), workspace: try Workspace(layout: store.layout))
        } else {
            try file.put([1], at: 0)
        }
        #expect(try modified(file)[1] < future)
        // A reader finds the state of a kill.
        if !isLogged {
            let reader = try vault.open(isReadOnly: true)
            #expect(try modified(vault.reopen(in: reader)) == [future, modified(file)[1]])
        }
        try store.log.checkpoint(.due)
        #expect(try modified(file)[0] < future)
    }

    @Test("Log-9: a change has its own time after a kill, between a future time that was set and chmod(2)")
    func modeAfterFutureTime() throws {
        let future = [timespec(tv_sec: 4_000_000_000, tv_nsec: 5), timespec(tv_sec: 4_000_000_000, tv_nsec: 5)]
        #expect(futimens(file.reader.fd, future) == 0)
        try file.put([1], at: 0)
        awaitTick()
        #expect(fchmod(file.reader.fd, 0o640) == 0)
        let shown = try modified(file)[1]
        #expect(try modified(vault.reopen(in: try vault.open(isReadOnly: true)))[1] == shown)
        #expect(try modified(vault.reopen(in: try vault.open()))[0] == shown)
    }

    @Test("Log-9: a change that a checkpoint does not put in place has its time after it")
    func raisedTimeBesideCheckpoint() throws {
        try file.put([1], at: 0)
        let shown = Mutex<timespec?>(nil)
        let answer = { @Sendable [file, store, vault] (call: WatchedCall) -> Int32 in
            guard call.kind == .synchronize, call.path == vault.path("file") else { return 0 }
            awaitTick()
            // The call sets the current length again.
            try? file.setLength(UInt64(Self.c), workspace: Workspace(layout: store.layout))
            shown.withLock { $0 = (try? file.reader.status()).map { file.parts.log.shownStatus($0).st_mtim } }
            return 0
        }
        try CallWatcher.watch(vault.path, answer) { try store.log.checkpoint(.due) }
        let after = try file.reader.status().st_mtim
        #expect(!file.isLogged && shown.withLock { $0?.nanoseconds } == after.nanoseconds)
    }

    @Test("Log-9: times are durable with the content", arguments: ["checkpoint", "set time", "recovery"])
    func durableTimes(_ part: String) throws {
        try file.put([1], at: 0)
        let change = changes(modified: 500)
        /// True while a power cut may take the time.
        let isDirty = Mutex(false)
        let hasSet = Mutex(part != "set time")
        let answer = { @Sendable [file, vault] (call: WatchedCall) -> Int32 in
            guard call.path == vault.path("file") else { return 0 }
            if call.kind == .setAttributes { isDirty.withLock { $0 = true } }
            guard call.kind == .synchronize else { return 0 }
            if !call.isDataOnly { isDirty.withLock { $0 = false } }
            // Acts once, while a checkpoint puts the content in place.
            if hasSet.withLock({ $0 }) { return 0 }
            hasSet.withLock { $0 = true }
            try? file.set(change)
            return 0
        }
        try CallWatcher.watch(vault.path, includesAttributes: true, answer) {
            if part == "recovery" {
                _ = try vault.open()
            } else {
                try store.log.checkpoint(.due)
            }
            if part == "set time" { try file.synchronize(dataOnly: false) }
        }
        #expect(!isDirty.withLock { $0 })
    }
}

extension EncryptedFile {
    fileprivate func set(_ changes: AttributeChanges) throws {
        try parts.excludingHiddenWrites { () throws(StoreError) in try parts.apply(changes, to: reader) }
    }
}
