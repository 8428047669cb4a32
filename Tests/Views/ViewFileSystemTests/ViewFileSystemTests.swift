import FileSystem
import Foundation
import LinuxSystem
import Locking
import SystemPackage
import TestSupport
import Testing
import ViewFormats

@testable import ViewFileSystem

@Suite(.timeLimit(.minutes(60)))
struct ViewFileSystemTests {
    @Test("A file is as long as its plaintext before it is opened, if the key is available")
    func lengths() throws {
        let view = try MountedView(pattern(5000))
        let entry = try view.lookUp("f")
        #expect(entry.attributes.st_size == 5000)
        #expect(entry.attributes.st_mode & 0o222 == 0)
        let handle = try view.open(entry.id)
        #expect(try view.read(handle) == pattern(5000))
    }

    @Test("Another file under the name: the open one keeps content and attributes, the next open gets a stale error")
    func replaced() throws {
        let view = try MountedView(pattern(5000))
        let entry = try view.lookUp("f")
        let handle = try view.open(entry.id)
        try view.write(pattern(300, seed: 2), to: "g")
        try #require(rename(view.directory.appending("g"), view.directory.appending("f")) == 0)
        #expect(try view.system.attributes(entry.id).st_size == 5000)
        #expect(try view.read(handle) == pattern(5000))
        #expect(throws: StoreError.system(.staleNFSFileHandle)) { try view.open(entry.id) }
        let other = try view.lookUp("f")
        #expect(other.id != entry.id)
        #expect(try view.read(view.open(other.id)) == pattern(300, seed: 2))
    }

    @Test("Rewritten in place with the same size and times: the kernel's pages and ours are dropped")
    func rewritten() throws {
        let view = try MountedView(pattern(5000))
        let entry = try view.lookUp("f")
        let first = try view.open(entry.id)
        #expect(try view.read(first) == pattern(5000))
        view.system.release(first)
        #expect(try view.open(entry.id).caching == .keep)
        var times = [entry.attributes.st_atim, entry.attributes.st_mtim]
        try view.write(pattern(5000, seed: 2), to: "f")
        utimensat(AT_FDCWD, view.directory.appending("f"), &times, 0)
        // An earlier stat must not make the old pages count for the new content.
        #expect(try view.system.attributes(entry.id).st_size == 5000)
        let second = try view.open(entry.id)
        #expect(second.caching == .drop)
        #expect(try view.open(entry.id).caching == .drop, "the kernel may not have the answer to the second yet")
        #expect(try view.read(second) == pattern(5000, seed: 2))
        #expect(try view.open(entry.id).caching == .keep)
    }

    @Test("A read of a file that was cut after it was opened counts once as damaged")
    func cut() throws {
        let view = try MountedView(pattern(5000))
        let handle = try view.open(view.lookUp("f").id)
        try #require(truncate(view.directory.appending("f"), 4000) == 0)
        #expect(throws: StoreError.system(.ioError)) { try view.read(handle) }
        #expect(view.system.statistics().damagedReads == 1)
    }

    @Test("Keys are forgotten when one that is being derived has ended too")
    func derivedMeanwhile() throws {
        let (isHeld, isDeriving, isForgotten) = (Monitor(true), Monitor(false), Monitor(false))
        let view = try MountedView(derive: { (_, _) throws(ViewError) in
            isDeriving.update { $0 = true }
            isHeld.wait { $0 ? nil : () }
            throw .noKey("not this one")
        })
        let system = view.system
        let fetching = try BackgroundThread {
            _ = try? system.source.keys.fetch(.derived(salt: [1], cipher: .aes128CBC))
        }
        isDeriving.wait { $0 ? () : nil }
        let forgetting = try BackgroundThread {
            _ = system.forgetKeys(everything: false)
            isForgotten.update { $0 = true }
        }
        #expect(isForgotten.wait(until: .now + .milliseconds(200)) { $0 ? () : nil } == nil)
        isHeld.update { $0 = false }
        forgetting.join()
        fetching.join()
        #expect(isForgotten.access { $0 })
    }

    @Test("Nothing is reported while it is locked; an unlock restores forgotten keys")
    func locked() throws {
        let view = try MountedView(pattern(100))
        let entry = try view.lookUp("f")
        let handle = try view.open(entry.id)
        view.gate.enter(.locked)
        #expect(throws: StoreError.locked) { try view.read(handle) }
        #expect(throws: StoreError.locked) { try view.open(entry.id) }
        #expect(throws: StoreError.locked) { try view.lookUp("f") }
        #expect(throws: StoreError.locked) { try view.system.attributes(entry.id) }
        _ = try view.system.attributes(.root)
        #expect(view.system.forgetKeys(everything: false) == ["view"])
        view.gate.enter(.unlocked)
        #expect(throws: StoreError.locked) { try view.read(handle) }
    }

    @Test("A file that was seen under another name before: its key is requested by its current name")
    func renamedInSource() throws {
        let place = try TemporaryDirectory()
        let (asked, key) = (place.appending("asked"), place.appending("key"))
        try Data(MountedView.key).write(to: URL(filePath: key))
        let view = try MountedView(keyCommand: "echo $VAULTFS_KEY_PATH >> \(asked); cat \(key)")
        try view.write(pattern(300), to: "f.part")
        let before = try view.lookUp("f.part")
        try #require(rename(view.directory.appending("f.part"), view.directory.appending("f")) == 0)
        let entry = try view.lookUp("f")
        #expect(entry.id == before.id)
        _ = try view.openDeferred(entry.id).wait { $0 }.get()
        #expect(try String(contentsOfFile: asked, encoding: .utf8) == "f\n")
    }

    @Test("An unlock that fetches keys again waits for those of open files: reading continues at once")
    func unlocked() throws {
        let place = try TemporaryDirectory()
        let key = place.appending("key")
        try Data(MountedView.key).write(to: URL(filePath: key))
        let view = try MountedView(pattern(300), keyCommand: "sleep 0.1; cat \(key)")
        let handle = try view.openDeferred(view.lookUp("f").id).wait { $0 }.get()
        view.gate.enter(.locked)
        _ = view.system.forgetKeys(everything: false)
        let started = ContinuousClock.now
        try view.system.restoreKeys(nil)
        let waited = ContinuousClock.now - started
        view.gate.enter(.unlocked)
        // `restoreKeys` waits two seconds at most, and on a busy machine the command may take longer.
        if waited >= .seconds(2) { try poll("the key") { (try? view.read(handle)) != nil } }
        #expect(try view.read(handle) == pattern(300))
    }

    // MARK: Keys that must be fetched

    /// A view with a key command that waits until the test writes the key into a fifo.
    private struct SlowView {
        let view: MountedView
        let fifo: String
        let place: TemporaryDirectory

        init() throws {
            place = try TemporaryDirectory()
            fifo = place.appending("fifo")
            try #require(mkfifo(fifo, 0o600) == 0)
            view = try MountedView(pattern(5000), keyCommand: "cat \(fifo)")
        }

        func answerKey() throws {
            try Data(MountedView.key).write(to: URL(filePath: fifo), options: [])
        }
    }

    @Test("An open that waits for a key is answered when the key arrives; the size is the ciphertext's until then")
    func deferredOpen() throws {
        let slow = try SlowView()
        let changed = Monitor<[UInt64]>([])
        slow.view.system.setAttributeObserver { inode in changed.update { $0.append(inode) } }
        let entry = try slow.view.lookUp("f")
        #expect(entry.attributes.st_size == 5008)
        let answer = try slow.view.openDeferred(entry.id)
        try slow.answerKey()
        let handle = try answer.wait { $0 }.get()
        #expect(try slow.view.read(handle) == pattern(5000))
        #expect(changed.update { $0 } == [entry.id.rawValue], "the kernel asks for the size again")
        #expect(try slow.view.system.attributes(entry.id).st_size == 5000)
    }

    @Test("A lock that comes while an open waits for its key: refused")
    func lockedWhileWaiting() throws {
        let slow = try SlowView()
        let answer = try slow.view.openDeferred(try slow.view.lookUp("f").id)
        slow.view.gate.enter(.locked)
        slow.view.gate.drain()
        try slow.answerKey()
        #expect(throws: StoreError.locked) { try answer.wait { $0 }.get() }
    }

    @Test("Keys are forgotten while an open waits: it is answered at once")
    func forgottenWhileWaiting() throws {
        let slow = try SlowView()
        let answer = try slow.view.openDeferred(try slow.view.lookUp("f").id)
        _ = slow.view.system.forgetKeys(everything: false)
        #expect(throws: StoreError.locked) { try answer.wait { $0 }.get() }
    }

    @Test("The end of the mount answers all requests that wait for a key")
    func endedWhileWaiting() throws {
        let slow = try SlowView()
        let answer = try slow.view.openDeferred(try slow.view.lookUp("f").id)
        slow.view.system.endDeferred()
        #expect(throws: StoreError.self) { try answer.wait { $0 }.get() }
    }
}
