import Foundation
import TestSupport
import Testing

@testable import vaultfs

extension PlainMountTests {
    /// `import` and `export` beside mounts of the same vault, and of another encrypted file system.
    @Suite(.enabled(if: Products.isRoot, "takes root")) struct Transfers {
        private let vault: VaultUnderTest
        private let directory: TemporaryDirectory

        init() throws {
            vault = try VaultUnderTest()
            directory = try TemporaryDirectory(in: "/dev/shm")
        }

        private func importing(_ source: String, _ options: [String] = []) throws -> CommandResult {
            try vault.vaultfs(["import", source, vault.vault, "--passfile", vault.passfile] + options)
        }

        private func expectSame(_ one: String, _ other: String, sourceLocation: SourceLocation = #_sourceLocation)
            throws
        {
            let command = ["rsync", "-aHAX", "--checksum", "--delete", "-n", "-i", "\(one)/", "\(other)/"]
            let lines = try Command(command).run().succeeded().output.split(separator: "\n")
            // The vault's own root existed before and keeps its attributes.
            #expect(lines.filter { !$0.hasSuffix(" ./") } == [], sourceLocation: sourceLocation)
        }

        @Test("a mount shows what was imported, and the vault that is mounted is not written")
        func mountShowsWhatWasImported() throws {
            let tree = directory.appending("tree")
            try Command([Products.python, Products.program("posix/nasty-tree.py"), tree, "50"]).run().succeeded()
            try importing(tree).succeeded()
            try vault.mount()
            try expectSame(tree, vault.mountpoint)
            let refused = try importing(tree)
            #expect(refused.exitCode == FailureCode.inUse.rawValue)
            #expect(refused.errors.contains("is mounted already: at \(vault.mountpoint), by process "), "\(refused)")
            #expect(refused.errors.hasSuffix(": copy to \(vault.mountpoint) instead, or unmount it first\n"))
            let out = directory.appending("out")
            let export = ["export", vault.vault, out, "--passfile", vault.passfile, "--preserve-special"]
            #expect(try vault.vaultfs(export).exitCode == FailureCode.inUse.rawValue)
            // A reader does not exclude another.
            try vault.remount(["-o", "ro"])
            try vault.vaultfs(export).succeeded()
            try expectSame(tree, out)
            try vault.unmount()
        }

        @Test("export to standard output, until something is damaged; import --no-owner")
        func pipes() throws {
            let tree = directory.appending("tree")
            try Command(["sh", "-ec", "mkdir $1; seq 100000 >$1/f; chown 12:34 $1/f", "sh", tree]).run().succeeded()
            try importing(tree, ["--no-owner"]).succeeded()
            let command = "$0 export $1:f - --passfile $2 | cmp - $3/f; exec $0 export $1:f - --passfile $2"
            let piped = ["sh", "-ec", command, vault.account.binary, vault.vault, vault.passfile, tree]
            let output = try Command(piped).run().succeeded().output
            #expect(output.hasSuffix("\n99999\n100000\n"))
            let whole = try vault.vaultfs(["export", vault.vault, "-", "--passfile", vault.passfile])
            #expect(whole.exitCode == FailureCode.usage.rawValue && whole.output.isEmpty, "\(whole)")
            try vault.mount()
            #expect(try Command(["stat", "-c", "%u:%g", "\(vault.mountpoint)/f"]).run().output == "0:0\n")
            try vault.unmount()
            let file = try #require(try largestFile(in: vault.vault))
            let damage = ["dd", "if=/dev/zero", "of=\(file)", "bs=16", "seek=1250", "count=1", "conv=notrunc"]
            try Command(damage).run().succeeded()
            let damaged = try vault.vaultfs(["export", "\(vault.vault):f", "-", "--passfile", vault.passfile])
            #expect(damaged.exitCode == FailureCode.damageFound.rawValue)
            #expect(damaged.output.utf8.count <= 20000 && output.hasPrefix(damaged.output), "\(damaged.errors)")
        }

        private func largestFile(in directory: String) throws -> String? {
            let command = ["sh", "-c", "ls -S $1 | head -1", "sh", directory]
            return try Command(command).run().output.split(separator: "\n").first.map { "\(directory)/\($0)" }
        }

        @Test("the mount of another program's directory moves into a vault", arguments: ["gocryptfs", "encfs"])
        func mountOfOtherProgramMoves(program: String) throws {
            let (cipher, plain) = (directory.appending("cipher"), directory.appending("plain"))
            try Command(["mkdir", cipher, plain]).run().succeeded()
            let secret = try directory.write("secret", "correct horse")
            var (options, longest) = (["--standard", "--extpass=cat '\(secret)'"], 150)
            if program == "gocryptfs" {
                (options, longest) = (["-q", "-passfile", secret], 200)
                try Command([program, "-init", "-scryptn", "10"] + options + [cipher]).run().succeeded()
            }
            try Command([program] + options + [cipher, plain]).run().succeeded()
            defer { _ = try? Command(["fusermount3", "-u", plain]).run() }
            try Command(["mkdir", "-p", "\(plain)/letters/\(String(repeating: "n", count: longest))"]).run().succeeded()
            try directory.write("plain/letters/to Ada", "Meet me at noon", mode: 0o640)
            try Command(["ln", "-s", "letters/to Ada", "\(plain)/newest"]).run().succeeded()
            try importing(plain, ["--verify"]).succeeded()
            try vault.mount()
            try expectSame(plain, vault.mountpoint)
            try vault.unmount()
        }

        @Test("the commands of the manual move a gocryptfs directory into a vault")
        func manual() throws {
            let secret = try directory.write("secret", "correct horse", mode: 0o600)
            try Command(["mkdir", directory.appending("Old")]).run().succeeded()
            let making = ["gocryptfs", "-q", "-init", "-scryptn", "10", "-passfile", secret]
            try Command(making + [directory.appending("Old")]).run().succeeded()
            let block = try Products.manualBlock("Transfer", with: "gocryptfs ~/Old")
            let functions = """
                set -e
                vaultfs() { "$BINARY" "$@" --passfile ~/secret; }
                gocryptfs() { command gocryptfs -q -passfile ~/secret "$@" && echo text >~/Plain/file; }

                """
            defer { _ = try? Command(["fusermount3", "-uz", directory.appending("Plain")]).run() }
            try Command(
                ["sh", "-c", functions + block], environment: ["HOME": directory.path, "BINARY": Products.binary]
            ).run().succeeded()
            #expect(!FileManager.default.fileExists(atPath: directory.appending("Plain")))
            try Command(
                [
                    Products.binary, "export", directory.appending("Vault"), directory.appending("out"), "--passfile",
                    secret,
                ]
            ).run().succeeded()
            #expect(try String(contentsOfFile: directory.appending("out/file"), encoding: .utf8) == "text\n")
        }

        @Test("an ordinary user gets a list of what could not be kept")
        func ordinaryUserIsTold() throws {
            let vault = try Setting.userOnTmpfs.vault()
            let source = directory.appending("source")
            try Command(["mkdir", source]).run().succeeded()
            try vault.account.own(source)
            try directory.write("source/foreign", "of root", mode: 0o4755)
            let result = try vault.vaultfs(["import", source, vault.vault, "--passfile", vault.passfile])
            #expect(result.exitCode == FailureCode.notKept.rawValue)
            #expect(result.errors.hasSuffix("source: could not keep 1 owner\n"), "\(result)")
            try vault.mount()
            let mode = try vault.account.run(["stat", "-c", "%a", "\(vault.mountpoint)/foreign"]).succeeded().output
            #expect(mode == "755\n", "what runs as its owner is not to run as another")
            try vault.unmount()
        }
    }
}
