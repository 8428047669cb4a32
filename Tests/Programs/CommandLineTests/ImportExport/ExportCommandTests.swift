import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// Long exports of a view, through the binary. `Tests/Support/Scripts/export-view.txt` has the others.
@Suite(.timeLimit(.minutes(60))) struct ExportCommandTests {
    private static let key = "000102030405060708090a0b0c0d0e0f"

    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        try directory.write("key", Self.key, mode: 0o600)
    }

    private func exportStream(_ source: String, _ options: [String] = []) -> Command {
        let paths = [directory.appending(source), directory.appending("out")]
        let key = ["--key-file", directory.appending("key"), "--iv", Self.key]
        return Command([Products.binary, "export", "--view", "cbc"] + paths + key + ["--json"] + options)
    }

    /// Makes a sparse file. Each of its blocks decrypts to something.
    private func makeHole(_ size: String) throws {
        try Command(["truncate", "-s", size, directory.appending("hole")]).run().succeeded()
    }

    @Test("an export that was interrupted goes on, and until then there is no such file", arguments: [SIGINT, SIGKILL])
    func exportThatWasInterruptedGoes(signal: Int32) throws {
        try makeHole("600M")
        let partial = try interrupted(by: signal)
        #expect(access(partial, F_OK) == 0)
        #expect(access(directory.appending("out"), F_OK) != 0)
        let result = try exportStream("hole", ["--padding", "none"]).run().succeeded()
        let before = try #require(try result.fields()["bytesBefore"] as? Int)
        #expect(before >= 256 << 20)
        #expect(try result.fields()["bytes"] as? Int == (600 << 20) - before)
        #expect(access(partial, F_OK) != 0)
        // Every block of a hole but the first decrypts to the same bytes.
        try Command(
            ["cmp", "-i", "16:32", "-n", "\((600 << 20) - 32)", "out", "out"].map {
                $0 == "out" ? directory.appending($0) : $0
            }
        ).run().succeeded()
    }

    /// Returns the path of the file left by an export after this signal.
    private func interrupted(by signal: Int32) throws -> String {
        for _ in 0..<5 {
            let process = try exportStream("hole", ["--padding", "none"]).start()
            var partial: String?
            try poll("256 MiB, or the end", timeout: .seconds(60)) {
                partial = try self.partial(over: 257 << 20)
                return partial != nil || process.wait(timeout: .zero) != nil
            }
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

    /// Returns the path of the incomplete file, if it has more than this size.
    private func partial(over size: Int) throws -> String? {
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        guard let name = names.first(where: { $0.hasPrefix(".vaultfs-transfer-") }) else { return nil }
        var status = stat()
        let path = directory.appending(name)
        return stat(path, &status) == 0 && status.st_size > size ? path : nil
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
        var command = exportStream("hole", ["--padding", "none"])
        command.arguments = [Products.python, "-c", script] + command.arguments
        let result = try command.run().succeeded()
        let size = try #require(Int(result.errors.split(separator: "\n").last ?? ""))
        #expect(size < 64 << 10, "\(size) KiB")
        #expect(try result.fields()["bytes"] as? Int == 512 << 20)
    }

    @Test("a full disk ends the export, which continues with space", .enabled(if: Products.isRoot, "takes root"))
    func fullDisk() throws {
        let disk = try BackingStore(.smallTmpfs)
        let making = "head -c 16M /dev/urandom >plain; openssl enc -aes-128-cbc -K $0 -iv $0 -in plain -out file"
        try Command(["env", "-C", directory.path, "sh", "-c", making, Self.key]).run().succeeded()
        let filler = "\(disk.path)/filler"
        try Command(["sh", "-c", "head -c 15000000 /dev/zero > \(filler)"]).run().succeeded()
        var command = exportStream("file")
        command.arguments[5] = "\(disk.path)/out"
        let full = try command.run()
        #expect(full.exitCode == FailureCode.failure.rawValue)
        #expect(full.errors.contains("No space left on device"))
        #expect(access("\(disk.path)/out", F_OK) != 0)
        try Command(["rm", filler]).run().succeeded()
        try command.run().succeeded()
        try Command(["cmp", directory.appending("plain"), "\(disk.path)/out"]).run().succeeded()
    }
}
