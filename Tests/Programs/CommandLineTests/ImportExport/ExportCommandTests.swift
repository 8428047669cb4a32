import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// `vaultfs export --view` and `vaultfs info --view`, through the binary.
@Suite(.timeLimit(.minutes(20))) struct ExportCommandTests {
    private static let key = "000102030405060708090a0b0c0d0e0f"

    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        try directory.write("key", Self.key, mode: 0o600)
    }

    private func export(_ format: String, _ source: String, _ destination: String, _ options: [String]) -> Command {
        Command(
            [
                Products.binary, "export", "--view", format, directory.appending(source),
                directory.appending(destination),
            ]
                + options)
    }

    private func exportStream(_ source: String, _ destination: String, _ options: [String] = []) -> Command {
        export(
            "cbc", source, destination,
            ["--key-file", directory.appending("key"), "--iv", Self.key, "--json"] + options)
    }

    private func makePlaintext(_ count: Int) throws {
        try Command(["sh", "-c", "head -c \(count) /dev/urandom > \(directory.appending("plain"))"]).run().succeeded()
    }

    private func openssl(_ options: [String], to name: String) throws {
        try Command(
            ["openssl", "enc"] + options + ["-in", directory.appending("plain"), "-out", directory.appending(name)]
        ).run().succeeded()
    }

    private func expectPlaintext(_ name: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let result = try Command(["cmp", directory.appending("plain"), directory.appending(name)]).run()
        #expect(result.exitCode == 0, "\(result)", sourceLocation: sourceLocation)
    }

    /// A sparse file. Each of its blocks decrypts to something.
    private func makeHole(_ size: String) throws {
        try Command(["truncate", "-s", size, directory.appending("hole")]).run().succeeded()
    }

    private func fields(_ result: CommandResult) throws -> [String: Any] {
        try #require(JSONSerialization.jsonObject(with: Data(result.output.utf8)) as? [String: Any])
    }

    @Test("a directory of the source that leads back to the source is no destination")
    func directoryOfSourceThatLeads() throws {
        try makePlaintext(1000)
        try Command(["mkdir", "-p", directory.appending("a/Show/Show")]).run().succeeded()
        for name in ["a/Show/x", "a/Show/Show/x"] {
            try openssl(["-aes-128-cbc", "-K", Self.key, "-iv", Self.key], to: name)
        }
        // Plaintext must not replace any source file.
        let before = try Data(contentsOf: URL(filePath: directory.appending("a/Show/x")))
        let result = try exportStream("a/Show", "a", ["--overwrite"]).run()
        #expect(
            result.exitCode == 11 && result.errors.contains("the vault or source itself is there"), "\(result)")
        #expect(try Data(contentsOf: URL(filePath: directory.appending("a/Show/x"))) == before)
        try expectPlaintext("a/x")
    }

    @Test(
        "a file that openssl encrypted with a passphrase comes out, into a file and into a directory",
        arguments: [["-pbkdf2"], []])
    func fileThatOpensslEncrypted(
        derivation: [String]
    ) throws {
        try makePlaintext(1_000_003)
        let secret = try directory.write("secret", "correct horse")
        try openssl(["-aes-256-cbc", "-pass", "file:\(secret)"] + derivation, to: "salted")
        try Command(["mkdir", directory.appending("into")]).run().succeeded()
        let options = ["--passfile", secret] + (derivation.isEmpty ? [] : ["--pbkdf2-iterations", "10000"])
        for destination in ["out", "into"] {
            let result = try export("openssl", "salted", destination, options).run().succeeded()
            #expect(result.output.hasPrefix("exported 1 file, "))
        }
        try expectPlaintext("out")
        try expectPlaintext("into/salted")
    }

    @Test("a playlist and its segments come out as a mount shows them")
    func playlistAndItsSegmentsCome() throws {
        try makePlaintext(200_000)
        try Command(["mkdir", directory.appending("hls")]).run().succeeded()
        let vector = "0000000000000000000000000000000a"
        try openssl(["-aes-128-cbc", "-K", Self.key, "-iv", vector], to: "hls/a.ts")
        try Command(["cp", directory.appending("key"), directory.appending("hls/k")]).run().succeeded()
        try directory.write(
            "hls/p.m3u8",
            "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:10\n#EXT-X-KEY:METHOD=AES-128,URI=\"https://example.org/k\"\n#EXTINF:4,\na.ts\n"
        )
        try export("hls", "hls", "out", []).run().succeeded()
        try expectPlaintext("out/a.ts")
        let playlist = try String(contentsOfFile: directory.appending("out/p.m3u8"), encoding: .utf8)
        #expect(playlist == "#EXTM3U\n#EXT-X-MEDIA-SEQUENCE:10\n#EXTINF:4,\na.ts\n")
    }

    @Test("content that stays encrypted is named, keeps its key lines, and the exit code is 11")
    func whatStaysEncrypted() throws {
        try makePlaintext(5000)
        try Command(["mkdir", directory.appending("hls")]).run().succeeded()
        for name in ["1.ts", "renamed.ts"] {
            try openssl(["-aes-128-cbc", "-K", Self.key, "-iv", Self.key], to: "hls/\(name)")
        }
        try Command(["cp", directory.appending("key"), directory.appending("hls/k")]).run().succeeded()
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x\(Self.key)\n"
        let text = "#EXTM3U\n\(key)#EXTINF:4,\nhttps://h/1.ts\n#EXTINF:4,\nhttps://h/left.ts\n"
        try directory.write("hls/p.m3u8", text)
        let result = try export("hls", "hls", "out", ["--json"]).run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue, "\(result)")
        #expect(try fields(result)["failed"] as? Int == 2)
        #expect(result.errors.contains("vaultfs: p.m3u8: encrypted, and not decrypted: line 6"), "\(result)")
        #expect(result.errors.contains("vaultfs: renamed.ts: looks encrypted, and no playlist names it"), "\(result)")
        try expectPlaintext("out/1.ts")
        let shown = try String(contentsOfFile: directory.appending("out/p.m3u8"), encoding: .utf8)
        #expect(shown == "#EXTM3U\n#EXTINF:4,\n1.ts\n#EXTINF:4,\n\(key)https://h/left.ts\n")
        // With all of it, the export is complete.
        try Command(["mv", directory.appending("hls/renamed.ts"), directory.appending("hls/left.ts")]).run().succeeded()
        try export("hls", "hls", "all", []).run().succeeded()
    }

    @Test(
        "files of openssl enc without a salt, or with a given one; of a passphrase file the first line counts",
        arguments: [["-pbkdf2"], []])
    func filesWithoutHeader(derivation: [String]) throws {
        try makePlaintext(5000)
        let secret = try directory.write("secret", "correct horse\nbattery\n")
        let options = ["--passfile", secret] + (derivation.isEmpty ? [] : ["--pbkdf2"])
        let base = ["-aes-256-cbc", "-pass", "file:\(secret)"] + derivation
        for (name, salt) in [("none", ["-nosalt"]), ("given", ["-S", "0011223344"]), ("header", [])] {
            try openssl(base + salt, to: name)
        }
        let refused = try export("openssl", "none", "out", options).run()
        #expect(refused.exitCode == FailureCode.incomplete.rawValue)
        #expect(refused.errors.contains("made with -nosalt, or with -S by OpenSSL 3 (--salt gives that salt)"))
        for (name, salt) in [("none", ["--salt", "none"]), ("given", ["--salt", "0011223344"]), ("header", [])] {
            let result = try export("openssl", name, "out-\(name)", options + salt).run().succeeded()
            #expect(!result.errors.contains("line break"), "\(result)")
            try expectPlaintext("out-\(name)")
        }
        // A file with a header has its own salt.
        try export("openssl", "header", "out-own", options + ["--salt", "none"]).run().succeeded()
        try expectPlaintext("out-own")
        for wrong in ["", "x", "00112233445566778"] {
            #expect(try export("openssl", "none", "out", options + ["--salt", wrong]).run().exitCode == 2)
        }
    }

    @Test("of one file that fails there is one line, of several a line each")
    func ofOneFileThatFails() throws {
        try Command(["mkdir", directory.appending("tree")]).run().succeeded()
        for name in ["tree/a", "tree/b"] { try directory.write(name, "no ciphertext") }
        let one = try exportStream("tree/a", "out").run()
        #expect(one.exitCode == FailureCode.incomplete.rawValue)
        #expect(one.errors.split(separator: "\n").count == 1)
        #expect(one.errors.hasPrefix("vaultfs: \(directory.appending("tree/a")): the file has 13 bytes"))
        let two = try exportStream("tree", "out").run()
        #expect(two.exitCode == FailureCode.incomplete.rawValue)
        #expect(two.errors.split(separator: "\n").count == 3)
        #expect(two.errors.contains("vaultfs: b: "))
        #expect(try fields(two)["failed"] as? Int == 2)
        #expect((try fields(two)["failures"] as? [[String: String]])?.count == 2)
    }

    @Test("an export that was interrupted goes on, and until then there is no such file", arguments: [SIGINT, SIGKILL])
    func exportThatWasInterruptedGoes(signal: Int32) throws {
        try makeHole("600M")
        let partial = try interrupted(by: signal)
        #expect(access(partial, F_OK) == 0)
        #expect(access(directory.appending("out"), F_OK) != 0)
        let result = try exportStream("hole", "out", ["--padding", "none"]).run().succeeded()
        let before = try #require(try fields(result)["bytesBefore"] as? Int)
        #expect(before >= 256 << 20)
        #expect(try fields(result)["bytes"] as? Int == (600 << 20) - before)
        #expect(access(partial, F_OK) != 0)
        // Every block of a hole decrypts to the same bytes, except the first.
        let compared = try Command(
            ["cmp", "-i", "16:32", "-n", "\((600 << 20) - 32)", "out", "out"].map {
                $0 == "out" ? directory.appending($0) : $0
            }
        ).run()
        #expect(compared.exitCode == 0, "\(compared)")
    }

    /// The path of the file that an export leaves after this signal.
    private func interrupted(by signal: Int32) throws -> String {
        for _ in 0..<5 {
            let process = try exportStream("hole", "out", ["--padding", "none"]).start()
            let partial = waitForPartial(over: 257 << 20, of: process)
            process.kill(signal)
            let code = process.wait(timeout: .seconds(60))
            if code == 0 {
                // On a busy machine the export may already have ended.
                try Command(["rm", directory.appending("out")]).run().succeeded()
                continue
            }
            #expect(code == 128 + signal)
            #expect(process.errors.contains("goes on where") == (signal == SIGINT))
            return try #require(partial)
        }
        throw TestFailure("it is never interrupted")
    }

    /// The path of the incomplete file, once it has this size. Nil if the process ended first.
    private func waitForPartial(over size: Int, of process: RunningProcess) -> String? {
        let deadline = ContinuousClock.now + .seconds(60)
        while ContinuousClock.now < deadline, process.wait(timeout: .zero) == nil {
            let names = (try? FileManager.default.contentsOfDirectory(atPath: directory.path)) ?? []
            if let name = names.first(where: { $0.hasPrefix(".vaultfs-transfer-") }) {
                var status = stat()
                if stat(directory.appending(name), &status) == 0, status.st_size > size {
                    return directory.appending(name)
                }
            }
            usleep(1000)
        }
        return nil
    }

    @Test("memory does not grow with the file")
    func memoryDoesNotGrow() throws {
        try makeHole("512M")
        let script = """
            import json, os, sys
            child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
            _, status, usage = os.wait4(child, 0)
            print(usage.ru_maxrss, file=sys.stderr)
            sys.exit(os.waitstatus_to_exitcode(status))
            """
        var command = exportStream("hole", "out", ["--padding", "none"])
        command.arguments = [Products.python, "-c", script] + command.arguments
        let result = try command.run().succeeded()
        let size = try #require(Int(result.errors.split(separator: "\n").last ?? ""))
        #expect(size < 64 << 10, "\(size) KiB")
        #expect(try fields(result)["bytes"] as? Int == 512 << 20)
    }

    @Test("a full disk ends the export, which continues with space", .enabled(if: Products.isRoot, "takes root"))
    func fullDisk() throws {
        let disk = try BackingStore(.smallTmpfs)
        try makePlaintext(16 << 20)
        try openssl(["-aes-128-cbc", "-K", Self.key, "-iv", Self.key], to: "file")
        let filler = "\(disk.path)/filler"
        try Command(["sh", "-c", "head -c 15000000 /dev/zero > \(filler)"]).run().succeeded()
        var command = exportStream("file", "out")
        command.arguments[5] = "\(disk.path)/out"
        let full = try command.run()
        #expect(full.exitCode == FailureCode.failure.rawValue)
        #expect(full.errors.contains("No space left on device"))
        #expect(access("\(disk.path)/out", F_OK) != 0)
        try Command(["rm", filler]).run().succeeded()
        try command.run().succeeded()
        let result = try Command(["cmp", directory.appending("plain"), "\(disk.path)/out"]).run()
        #expect(result.exitCode == 0, "\(result)")
    }

    @Test("nothing is made in the source")
    func nothingIsMadeInSource() throws {
        try Command(["mkdir", directory.appending("tree")]).run().succeeded()
        for destination in ["tree", "tree/new"] {
            let result = try exportStream("tree", destination).run()
            #expect(result.exitCode == FailureCode.failure.rawValue)
            #expect(result.errors.contains("is the source or in it"))
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.appending("tree")).isEmpty)
    }

    @Test(
        "the options of views are checked as for a mount",
        arguments: [
            (["--iv-in-file", "--iv", key], "only one of --iv, --iv-in-file can be given"),
            (["--chunk-size", "1M", "--iv", key], "--chunk-size is not for cbc"),
            (["--iv", key], "no key: give --key-file"), (["--iv", key, "--key-command", ""], "--key-command is empty"),
            (["--passfile", "/nonexistent"], "--passfile is for openssl"),
        ]
    )
    func optionsOfViewsAreChecked(options: [String], message: String) throws {
        try directory.write("file", "sixteen bytes...")
        let result = try export("cbc", "file", "out", options).run()
        #expect(result.exitCode == FailureCode.usage.rawValue)
        #expect(result.errors.contains(message), "\(result)")
    }
}
