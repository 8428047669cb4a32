import FileSystem
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultFormat

@testable import VaultStore

@Suite("A file that was being appended to when the daemon was killed")
struct TornAppendTests {
    private static let acknowledged = (0..<8192).map { UInt8(truncatingIfNeeded: $0 &* 31) }

    /// Three chunks, unsealed, of which the third is on disk up to the end of a page.
    private func tornStore(cutAt end: Int) throws -> TestStore {
        let vault = try TestStore()
        try vault.make(Self.acknowledged + [UInt8](repeating: 9, count: 4096), isSealed: false)
        try vault.change { $0.removeLast($0.count - end) }
        return vault
    }

    @Test("Store-6: it ends before the record that was torn, and can be appended to")
    func cut() throws {
        let vault = try tornStore(cutAt: 3 * 4096)
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        #expect(file.length > 8192)
        try file.prepareForWriting()
        #expect(try file.cutTornAppend())
        #expect(file.length == 8192)
        #expect(try !file.cutTornAppend())
        try file.put([1, 2, 3], at: 8192)
        #expect(try file.get(8195) == Self.acknowledged + [1, 2, 3])
    }

    @Test("Store-6: a last record that does not verify, and was not torn by a kill, stays an error")
    func damageStays() throws {
        let vault = try tornStore(cutAt: 3 * 4096 + 100)
        let file = try vault.reopen(in: try vault.open())
        let length = file.length
        #expect(try !file.cutTornAppend())
        #expect(file.length == length)
    }

    @Test("Store-6: a last record that cannot be read at the moment is not cut off, nor vouched for")
    func unreadableStays() throws {
        let vault = try TestStore()
        let content = Self.acknowledged + [UInt8](repeating: 7, count: 3 * 4096 - 128 - 2 * 4128 - 32)
        try vault.make(content, isSealed: false)
        let store = try vault.open()
        let file = try vault.reopen(in: store)
        try file.prepareForWriting()
        // From here on reading gives EBADF, as a disk or a server would EIO or ETIMEDOUT.
        let readable = fcntl(file.reader.fd, F_DUPFD_CLOEXEC, 0)
        let writeOnly = Glibc.open("/dev/null", O_WRONLY | O_CLOEXEC)
        defer {
            close(readable)
            close(writeOnly)
        }
        dup2(writeOnly, file.reader.fd)
        #expect(throws: StoreError.system(.badFileDescriptor)) { try file.cutTornAppend() }
        #expect(throws: StoreError.system(.badFileDescriptor)) {
            try file.seal(ifStill: file.lengthMark, isDurable: true)
        }
        dup2(readable, file.reader.fd)
        #expect(try !file.cutTornAppend())
        #expect(try file.get(content.count) == content)
    }

    @Test("Store-6: a last record that verifies stays")
    func wholeStays() throws {
        let vault = try TestStore()
        // 128 + 2 · 4128 + 3872 + 32: the file ends with a page, and is whole.
        let content = Self.acknowledged + [UInt8](repeating: 7, count: 3 * 4096 - 128 - 2 * 4128 - 32)
        try vault.make(content, isSealed: false)
        let file = try vault.reopen(in: try vault.open())
        #expect(try !file.cutTornAppend())
        #expect(try file.get(content.count) == content)
    }
}
