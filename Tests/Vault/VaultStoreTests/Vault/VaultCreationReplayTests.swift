import Foundation
import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import VaultStore

/// An `init` killed before it has made a vault, and the next `init`.
@Suite(.timeLimit(.minutes(60))) struct VaultCreationReplayTests {
    private static let files = ["vaultfs.dir", "vaultfs.json", "vaultfs.lock", "vaultfs.log"]

    private let directory: VaultTestDirectory
    private var path: FilePath { directory.path.appending("vault") }

    init() throws {
        directory = try VaultTestDirectory()
        try #require(mkdir(path.string, 0o700) == 0)
    }

    private func create(_ path: FilePath? = nil) throws {
        try VaultCreation.create(
            at: path ?? self.path, chunkSize: 4096, logSize: 2 << 20,
            slots: [VaultFixture.slot(VaultFixture.passphrase())])
    }

    private func expectVault(_ when: Comment, at path: FilePath? = nil) throws {
        let path = path ?? self.path
        #expect(try FileManager.default.contentsOfDirectory(atPath: path.string).sorted() == Self.files, when)
        let vault = try VaultDirectory.open(path)
        _ = try vault.openSlot(with: VaultFixture.passphrase()).masterKey
        try vault.lock(wait: .seconds(10))
        vault.releaseLock()
    }

    /// Returns copies made during an `init`, before each of its changing calls.
    private func killed(_ path: FilePath? = nil) throws -> DirectoryCopies {
        let copies = DirectoryCopies(of: (path ?? self.path).string)
        try copies.takeBeforeEachChange { () throws in try create(path) }
        try expectVault("at once", at: path)
        return copies
    }

    @Test("whatever the moment, the next makes the vault, killed itself or not")
    func whateverMomentNext() throws {
        let copies = try killed()
        #expect(copies.paths.count > 6)
        for (call, copy) in copies.paths.enumerated() {
            try VaultCreation.check(at: FilePath(copy))
            let again = try killed(FilePath(copy))
            for (second, copy) in again.paths.enumerated() {
                try create(FilePath(copy))
                try expectVault("before call \(call), then \(second)", at: FilePath(copy))
            }
        }
    }

    @Test("a file that was only half written goes as well")
    func fileThatWasOnlyHalf() throws {
        let copies = try killed()
        var tried = 0
        for copy in copies.paths {
            let temporary = try FileManager.default.contentsOfDirectory(atPath: copy).filter { $0.contains(".tmp.") }
            for name in temporary {
                for count in [50, 1, 0] {
                    try copies.putBack(copy)
                    var status = stat()
                    let file = path.appending(name).string
                    try #require(stat(file, &status) == 0 && truncate(file, min(status.st_size, count)) == 0)
                    try create()
                    try expectVault("\(count) bytes of \(copy)")
                    tried += 1
                }
            }
        }
        #expect(tried >= 12)
    }

    /// The directory has the last remains of a killed `init`.
    @Test(
        "where there is anything else, nothing is touched",
        arguments: [
            "echo mine >file", "echo >vaultfs.lock", "rm vaultfs.lock", "echo >vaultfs.log",
            "truncate -s 63 vaultfs.dir",
            "mv vaultfs.tmp.* vaultfs.tmp.json-1f", "printf data >vaultfs.tmp.1f",
            "cat vaultfs.dir vaultfs.dir >vaultfs.tmp.1f",
            "touch vaultfs.tmp.0123456789abcdef0", "mkdir vaultfs.tmp.1f", "ln vaultfs.dir vaultfs.tmp.1f",
            "mkfifo vaultfs.tmp.1f", "rm vaultfs.tmp.*; ln -s vaultfs.dir vaultfs.tmp.1f", "mkdir lost+found",
        ]
    )
    func whereThereIsAnythingElse(script: String) throws {
        let copies = try killed()
        try copies.putBack(try #require(copies.paths.last))
        try Command(["env", "-C", path.string, "sh", "-ec", script]).run().succeeded()
        let look = ["env", "-C", path.string, "sh", "-ec", "ls -lAi; cat $(find . -type f | sort)"]
        let before = try Command(look).run().succeeded().output
        for attempt in [{ try VaultCreation.check(at: path) }, { try create() }] {
            let error = #expect(throws: VaultError.self) { try attempt() }
            #expect(error?.description.contains("directory is not empty: \(path)") == true)
        }
        #expect(try Command(look).run().succeeded().output == before)
    }

    @Test("a vault that another process is making stays")
    func vaultThatAnotherProcessMakes() throws {
        let copies = try killed()
        try copies.putBack(try #require(copies.paths.last))
        let before = try directory.entries(of: "vault")
        let hold = try WriterLock.acquire(root: VaultDirectory.openDirectory(path), .exclusive, wait: .zero)
        #expect(throws: VaultError.inUse(path, nil)) { try create() }
        #expect(try directory.entries(of: "vault") == before)
        hold?.release()
        try create()
        try expectVault("after the other")
    }
}
