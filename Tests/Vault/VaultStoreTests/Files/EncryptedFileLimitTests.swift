import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Limits of the store, and of offsets.
@Suite struct EncryptedFileLimitTests {
    private static let c = 4096

    @Test(
        "Conventions-5: an offset that no backing file reaches is an error",
        arguments: [
            UInt64(Int64.max) - 5000, UInt64(Int64.max) - 1, UInt64(Int64.max), .max - 5000, .max,
        ])
    func hugeOffsets(offset: UInt64) throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.put([1, 2, 3], at: 0)
        let workspace = try Workspace(layout: store.layout)
        let bytes = pattern(100)
        #expect(throws: StoreError.system(.fileTooLarge)) {
            try bytes.withUnsafeBytes { _ = try file.write($0, at: offset, workspace: workspace) }
        }
        #expect(throws: StoreError.system(.fileTooLarge)) { try file.setLength(offset, workspace: workspace) }
        #expect(throws: StoreError.system(.fileTooLarge)) {
            try file.allocate(5..<offset, keepsSize: false, workspace: workspace)
        }
        #expect(throws: StoreError.system(.fileTooLarge)) {
            try file.zeroRange(5..<offset, keepsSize: true, workspace: workspace)
        }
        var buffer = [UInt8](repeating: 0, count: 100)
        let had = try buffer.withUnsafeMutableBytes { try file.read(at: offset, into: $0, workspace: workspace) }
        #expect(had == 0)
        #expect(try file.seek(from: offset, toHole: true) == nil)
        try file.punchHole(5..<offset, workspace: workspace)
        #expect(try file.contents() == [1, 2, 3])
    }

    @Test("A file of the store's maximum size is written, read and cut")
    func sparseGiant() throws {
        let fixture = try TestStore()
        let file = try fixture.create(in: try fixture.open())
        let far = 1 << 40
        try file.put(pattern(5000), at: far)
        #expect(file.length == UInt64(far + 5000))
        #expect(try file.get(6000, at: far - 500) == [UInt8](repeating: 0, count: 500) + pattern(5000))
        let data = try #require(try file.seek(from: 100_000, toHole: false))
        #expect(data > 100_000 && data <= UInt64(far))
        try file.truncate(to: far + 1)
        try file.truncate(to: 5)
        #expect(try file.contents() == [0, 0, 0, 0, 0])
    }

    /// Expects the refusal of a write that does not fit, and everything before it unchanged.
    private func expectFull(
        _ file: EncryptedFile, _ content: [UInt8], at offset: Int,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let data = pattern(400_000, seed: 8)
        let workspace = try Workspace(layout: file.layout)
        var written = 0
        do {
            while written < data.count {
                written += try data.withUnsafeBytes { all in
                    try file.write(
                        UnsafeRawBufferPointer(rebasing: all[written...]), at: UInt64(offset + written),
                        workspace: workspace)
                }
            }
            Issue.record("no error", sourceLocation: sourceLocation)
        } catch StoreError.system(let found) {
            #expect(found == .noSpace, sourceLocation: sourceLocation)
        }
        let expected = Array(content[..<offset] + data[..<written] + content[offset...].dropFirst(written))
        #expect(try file.contents() == expected, sourceLocation: sourceLocation)
    }

    @Test(
        "ENOSPC: if a write ends early, the existing data stays, also in the chunk being grown",
        .enabled(if: geteuid() == 0), arguments: [0, 100, c, c + 100, 3 * c + 4000], [0, 1, 2, 7, 36])
    func full(length: Int, freePages: Int) throws {
        let disk = try SmallDisk(size: 1 << 20)
        let fixture = try TestStore(in: disk.path)
        let file = try fixture.create(in: try fixture.open())
        try file.put(pattern(length), at: 0)
        _ = try disk.fill(leaving: freePages * 4096)
        try expectFull(file, pattern(length), at: length)
        let reached = try file.contents()
        #expect(try fixture.reopen(in: try fixture.open()).contents() == reached)
        try file.truncate(to: length)
        #expect(try file.contents() == pattern(length))
    }

    @Test(
        "ENOSPC: existing data stays, also in the chunk being grown and in a hole being filled",
        .enabled(if: geteuid() == 0))
    func diskFull() throws {
        let disk = try SmallDisk(size: 1 << 20)
        let fixture = try TestStore(in: disk.path)
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        let content = pattern(3 * Self.c + 100)
        try file.put(content, at: 0)
        let sparse = try fixture.create("sparse", in: store)
        try sparse.truncate(to: 2 << 20)
        try sparse.put(pattern(100), at: 40)
        let filler = try disk.fill(leaving: 40 << 10)
        try expectFull(file, content, at: content.count)
        #expect(try fixture.reopen(in: store).contents() == file.contents())
        try file.truncate(to: content.count)

        try filler.extend()
        // The disk is full, so new bytes are refused, but every existing byte can be replaced.
        #expect(throws: StoreError.system(.noSpace)) { try file.put(pattern(9000), at: 2 << 20) }
        try file.put(pattern(2 * Self.c, seed: 4), at: 10)
        let changed = content[..<10] + pattern(2 * Self.c, seed: 4) + content[(10 + 2 * Self.c)...]
        #expect(try file.contents().starts(with: changed))
        #expect(throws: StoreError.system(.noSpace)) { try sparse.put(pattern(8 * Self.c), at: 1 << 20) }
        #expect(
            try sparse.get(2 << 20) == [UInt8](repeating: 0, count: 40) + pattern(100)
                + [UInt8](repeating: 0, count: (2 << 20) - 140))
        #expect(throws: StoreError.system(.noSpace)) {
            try file.allocate(0..<(1 << 19), keepsSize: true, workspace: try Workspace(layout: store.layout))
        }
        try file.truncate(to: 5)
        #expect(try file.contents() == Array(changed[..<5]))
        try file.truncate(to: 0)
        #expect(try fixture.header().isSealed == false)
    }
}
