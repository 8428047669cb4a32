import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Changes of a file's class (FileFormat: File header).
@Suite struct FileClassTests {
    private let fixture: TestStore
    private let content = pattern(9000)

    init() throws { fixture = try TestStore() }

    private func status() -> stat {
        var result = stat()
        #expect(stat(fixture.path("file"), &result) == 0)
        return result
    }

    @Test("Store-19, Header-7: 128 bytes change, and the file reads as before", arguments: [true, false])
    func change(isSealed: Bool) throws {
        try fixture.make(content, isSealed: isSealed)
        for newClass in [ProtectionClass.none, .untilFirstUnlock, .unlessOpen, .complete] {
            let (before, header) = (try fixture.bytes(), try fixture.header())
            let file = try fixture.reopen(in: try fixture.open())
            try file.changeClass(to: newClass)
            #expect(file.protectionClass == newClass)
            let changed = try fixture.header()
            #expect(changed.protectionClass == newClass && changed.fileID == header.fileID)
            #expect(changed.isSealed == isSealed && changed.length == header.length)
            #expect(changed.sealCounter == header.sealCounter)
            #expect(try fixture.bytes()[128...] == before[128...])
            #expect(try file.contents() == content)
            #expect(!file.needsSeal, "a change of class does not open for writing")
            let again = try fixture.reopen(in: try fixture.open())
            #expect(again.protectionClass == newClass)
            #expect(try again.contents() == content)
        }
    }

    @Test("Store-19: setting the current class writes nothing")
    func sameClass() throws {
        try fixture.make(content)
        let (before, ctime) = (try fixture.bytes(), status().st_ctim)
        let file = try fixture.reopen(in: try fixture.open())
        try file.changeClass(to: .complete)
        #expect(try fixture.bytes() == before)
        #expect(status().st_ctim.tv_sec == ctime.tv_sec && status().st_ctim.tv_nsec == ctime.tv_nsec)
    }

    @Test("Store-8: times, set-id bits and file capabilities stay, and the code that shows ctime is notified")
    func metadata() throws {
        try fixture.make(content)
        let path = fixture.path("file")
        #expect(chmod(path, 0o6755) == 0)
        let capability = ascii("security.capability")
        // CAP_NET_RAW, effective; only root may set one.
        let value: [UInt8] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        let file = try fixture.reopen(in: try fixture.open())
        if geteuid() == 0 { try ExtendedAttributes(file.reader).set(capability, value, flags: 0) }
        let past = [timespec(tv_sec: 1000, tv_nsec: 5), timespec(tv_sec: 2000, tv_nsec: 7)]
        #expect(futimens(file.reader.fd, past) == 0)
        let before = status()
        let told = Told(status)
        file.parts.attributes.onHiddenWrite.set { told.note($0.before, $0.after) }
        try file.changeClass(to: .none)
        let after = status()
        #expect(after.st_atim.tv_sec == 1000 && after.st_mtim.tv_sec == 2000 && after.st_mtim.tv_nsec == 7)
        #expect(after.st_mode == before.st_mode && after.st_size == before.st_size)
        if geteuid() == 0 { #expect(try ExtendedAttributes(file.reader).value(of: capability) == value) }
        #expect(told.isUnmovedAtFirst)
        let moved = try #require(told.moved)
        #expect(moved.before.st_ctim.tv_nsec == before.st_ctim.tv_nsec)
        #expect(moved.after.st_ctim.tv_nsec == after.st_ctim.tv_nsec)
    }

    @Test("A write in place that fails half-way leaves the file capability, and no former time")
    func failedWrite() throws {
        try fixture.make(content)
        let file = try fixture.reopen(in: try fixture.open())
        let capability = ascii("security.capability")
        let value: [UInt8] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        if geteuid() == 0 { try ExtendedAttributes(file.reader).set(capability, value, flags: 0) }
        #expect(futimens(file.reader.fd, [timespec(), timespec(tv_sec: 2000, tv_nsec: 7)]) == 0)
        let writer = try file.reader.reopenedForWriting()
        #expect(throws: StoreError.system(.noSpace)) {
            try file.parts.keepingAttributes(writer) { (_) throws(StoreError) in
                try writer.write([0], at: 200)
                throw .system(.noSpace)
            }
        }
        if geteuid() == 0 { #expect(try ExtendedAttributes(file.reader).value(of: capability) == value) }
        #expect(status().st_mtim.tv_sec > 2000)
    }

    @Test("A file that is being written changes its class in between, and is sealed and grows afterwards")
    func whileWritten() throws {
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.put(content, at: 0)
        try file.changeClass(to: .none)
        try file.put(content, at: 9000)
        #expect(try file.sealInPlace())
        try file.changeClass(to: .unlessOpen)
        #expect(try fixture.header().isSealed && fixture.header().protectionClass == .unlessOpen)
        try file.put([1], at: 18000)
        #expect(try !fixture.header().isSealed && fixture.header().protectionClass == .unlessOpen)
        try file.truncate(to: 0)
        try file.truncate(to: 2 << 20)
        #expect(try fixture.header().isSparse && fixture.header().protectionClass == .unlessOpen)
        try file.changeClass(to: .complete)
        #expect(try fixture.reopen(in: try fixture.open()).contents().count == 2 << 20)
    }

    @Test("Data beyond the sealed length is neither cut back nor made valid by a change of class")
    func unsealedTail() throws {
        try fixture.make(content)
        try fixture.change { $0 += $0[128..<(128 + 4128)] }
        let size = try fixture.bytes().count
        let file = try fixture.reopen(in: try fixture.open())
        try file.changeClass(to: .none)
        #expect(try fixture.bytes().count == size)
        let again = try fixture.reopen(in: try fixture.open())
        #expect(again.parts.hasUnsealedTail)
        damage { _ = try again.get(10, at: 9000) }
    }

    @Test("A read-only store refuses; a file that cannot be written keeps its class, in memory too")
    func refused() throws {
        try fixture.make(content)
        let before = try fixture.bytes()
        let readOnly = try fixture.reopen(in: try fixture.open(isReadOnly: true))
        #expect(throws: StoreError.refused(.readOnlyFileSystem)) { try readOnly.changeClass(to: .none) }
        #expect(readOnly.protectionClass == .complete)
        let file = try fixture.reopen(in: try fixture.open())
        // A descriptor that refuses writes simulates a failure of the store.
        file.writing.withLock { $0.open(file.reader) }
        #expect(throws: StoreError.system(.badFileDescriptor)) { try file.changeClass(to: .none) }
        #expect(file.protectionClass == .complete)
        #expect(file.writing.withLock { $0.header.protectionClass } == .complete)
        #expect(try fixture.bytes() == before)
        try fixture.reopen(in: try fixture.open()).changeClass(to: .none)
        #expect(try fixture.header().sealCounter == 1, "a change of class is no seal")
    }

    @Test("Store-19, ENOSPC: a full disk keeps no file from changing its class", .enabled(if: geteuid() == 0))
    func fullDisk() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let fixture = try TestStore(in: disk.path)
        try fixture.make(content)
        let filler = try disk.fill(leaving: 40 << 10)
        let store = try fixture.open()
        try filler.extend()
        try fixture.reopen(in: store).changeClass(to: .none)
        #expect(try fixture.header().protectionClass == .none)
        #expect(try fixture.reopen(in: store).contents() == content)
    }

    @Test("Writers, sealers and changes of class at once: every header verifies", .timeLimit(.minutes(60)))
    func besideWriters() throws {
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.put([0], at: 0)
        try concurrently([
            {
                let workspace = try Workspace(layout: store.layout)
                for round in 1..<300 { try file.put([UInt8(truncatingIfNeeded: round)], at: round, workspace) }
            },
            { for _ in 0..<100 { _ = try file.sealInPlace() } },
            { for round in 0..<100 { try file.changeClass(to: ProtectionClass.allCases[round % 4]) } },
        ])
        #expect(try fixture.header().protectionClass == .none)
        #expect(try fixture.reopen(in: store).contents() == (0..<300).map { UInt8(truncatingIfNeeded: $0) })
    }
}

/// The notifications of `onHiddenWrite`.
private final class Told: @unchecked Sendable {
    // @unchecked: one thread writes the values, before any thread reads them.
    private(set) var moved: (before: stat, after: stat)?
    private(set) var isUnmovedAtFirst = false
    private let current: () -> stat

    init(_ current: @escaping () -> stat) { self.current = current }

    func note(_ before: stat, _ after: stat?) {
        if let after {
            moved = (before, after)
        } else {
            isUnmovedAtFirst = current().st_ctim.tv_nsec == before.st_ctim.tv_nsec
        }
    }
}
