import Foundation
import TestSupport
import Testing

/// A vault, a directory for imported and exported files, and the two commands.
final class TransferPlace {
    let vault: VaultUnderTest
    let directory: TemporaryDirectory

    init(on kind: BackingStore.Kind = .tmpfs) throws {
        vault = try VaultUnderTest(on: kind)
        directory = try TemporaryDirectory(in: "/dev/shm")
    }

    func path(_ name: String) -> String { directory.appending(name) }

    /// Makes a tree with every object that is hard to copy, and this many small files.
    func makeTree(_ name: String = "tree", files: Int = 0) throws {
        try Command([Products.python, Products.program("posix/nasty-tree.py"), path(name), "\(files)"]).run()
            .succeeded()
    }

    /// Makes a file of random bytes, and its directory.
    func make(_ name: String, size: Int) throws {
        try Command(["sh", "-c", "mkdir -p ${0%/*}; head -c \(size) /dev/urandom > $0", path(name)]).run().succeeded()
    }

    func importing(_ source: String, to inside: String = "", options: [String] = []) -> Command {
        Command(
            [Products.binary, "import", path(source), vault.vault + inside, "--passfile", vault.passfile] + options)
    }

    func exporting(
        _ inside: String = "", to destination: String, options: [String] = [], dropsSpecial: Bool = false
    ) -> Command {
        Command(
            [Products.binary, "export", vault.vault + inside, path(destination), "--passfile", vault.passfile]
                + (dropsSpecial ? [] : ["--preserve-special"]) + options)
    }

    /// Returns the findings of `verify`, without those left by a crash and removed by the next import.
    func damage() throws -> [Substring] {
        let result = try Command([Products.binary, "verify", vault.vault, "--passfile", vault.passfile]).run()
        let notes = ["unsealed", "leftover", "logged", "tornTail", "checked"]
        return result.output.split(separator: "\n").filter { line in
            !notes.contains { line.hasPrefix($0) } && !line.contains(".vaultfs-transfer-")
        }
    }

    /// Expects both trees to have the same contents, modes, owners, times, links and attributes.
    /// - Parameter withRoots: compares the directories themselves too. An existing directory keeps its own attributes.
    func expectSame(
        _ one: String, _ other: String, withRoots: Bool = false, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let command = ["rsync", "-aHAX", "--checksum", "--delete", "-n", "-i", path(one) + "/", path(other) + "/"]
        let lines = try Command(command).run().succeeded().output.split(separator: "\n")
        #expect(lines.filter { withRoots || !$0.hasSuffix(" ./") } == [], sourceLocation: sourceLocation)
    }

    /// Flips a bit of a backing file, and keeps its times.
    func flip(_ backing: String, at offset: UInt64) throws {
        let script = """
            import os, sys
            path, offset = sys.argv[1], int(sys.argv[2])
            before = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(offset)
                byte = file.read(1)[0]
                file.seek(offset)
                file.write(bytes([byte ^ 1]))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            """
        try Command([Products.python, "-c", script, backing, "\(offset)"]).run().succeeded()
    }

    /// Returns the backing files in the vault's root, the largest first.
    func backingFiles() throws -> [String] {
        let names = try FileManager.default.contentsOfDirectory(atPath: vault.vault).filter {
            !$0.hasPrefix("vaultfs.")
        }
        return names.map { "\(vault.vault)/\($0)" }.sorted { sized($0) > sized($1) }
    }
}

/// Returns a file's size, or 0 without a file.
func sized(_ path: String) -> Int {
    var status = stat()
    return lstat(path, &status) == 0 ? status.st_size : 0
}
