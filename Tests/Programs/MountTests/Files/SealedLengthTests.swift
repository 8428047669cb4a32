import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A sealed file with a longer backing file, as shown by the independent reader, `export`, `verify` and mounts
    /// (FileFormat, Store-3).
    @Suite struct SealedLengths {
        /// The bytes past the sealed length: another program's, or the file's chunks under its former header.
        enum Tail: String, CaseIterable { case bytes, chunks }

        private static let added = 6000
        private static let script = """
            import os, sys
            vault, path, length, added, tail, step = *sys.argv[1:3], *map(int, sys.argv[3:5]), *sys.argv[5:]
            def entry(): return next(os.path.join(vault, e) for e in os.listdir(vault) if not e.startswith("vaultfs"))
            content = bytes(i * 31 % 251 for i in range(length + added))
            if step == "make":
                with open(path + "/f", "wb") as file: file.write(content[:length])
            elif step == "append" and tail == "chunks":
                with open(entry(), "rb") as file: header = file.read(128)
                with open(vault + ".header", "wb") as file: file.write(header)
                with open(path + "/f", "ab") as file: file.write(content[length:])
            elif step == "extend" and tail == "chunks":
                with open(vault + ".header", "rb") as file: header = file.read()
                with open(entry(), "r+b") as file: file.write(header)
            elif step == "extend":
                with open(entry(), "ab") as file: file.write(content[:added])
            elif step == "read":
                with open(path + "/f", "rb", buffering=0) as file:
                    found = b""
                    while len(found) < length: found += file.read(length - len(found))
                    assert found == content[:length]
                    try: print(len(file.read(1)))
                    except OSError as error: print("error", error.errno)
            elif step == "write":
                with open(path + "/f", "r+b") as file: assert file.read() == content[:length]
                kept = path + "/lost+found"
                print(*(os.path.getsize(os.path.join(kept, name)) for name in os.listdir(kept)) if os.path.exists(kept) else ())
            elif step == "size":
                with open(path, "rb") as file: assert file.read()[:length] == content[:length]
                print(os.path.getsize(path))
            """

        private let vault: VaultUnderTest
        private var plain: String { vault.plain }

        init() throws { vault = try VaultUnderTest() }

        private func vaultfs(_ command: String, _ arguments: [String] = []) throws -> CommandResult {
            try vault.vaultfs([command, vault.vault] + arguments + ["--passfile", vault.passfile])
        }

        private func extract(_ arguments: [String]) throws -> Int32 {
            let reader = [Products.python, Products.reader, vault.vault, "--passfile", vault.passfile]
            return try Command(reader + arguments).run().exitCode
        }

        @Test(
            "Store-3: the reader, export, verify and mounts agree about a sealed file that is longer",
            arguments: [(12293, Tail.bytes), (12293, .chunks), (12288, .bytes), (12288, .chunks)], [false, true])
        func agree(file: (length: Int, tail: Tail), isUnclean: Bool) throws {
            func run(_ step: String, at path: String? = nil) throws -> String {
                let command = [Products.python, "-c", Self.script, vault.vault, path ?? vault.mountpoint]
                let arguments = ["\(file.length)", "\(Self.added)", file.tail.rawValue, step]
                return try vault.account.run(command + arguments).succeeded().output
            }
            try vault.mount()
            _ = try run("make")
            try vault.remount()
            _ = try run("append")
            try vault.unmount()
            _ = try run("extend")
            if isUnclean {
                let note = Data("1 00000000-0000-0000-0000-000000000000 1 elsewhere 1 1\n".utf8)
                try note.write(to: URL(filePath: vault.vault + "/vaultfs.lock"))
            }

            // The data before the sealed length is whole. After it there is damage or a torn tail.
            #expect(try vault.read().exitCode == (isUnclean ? 0 : 8))
            let verified = try vaultfs("verify")
            #expect(verified.exitCode == (isUnclean ? 0 : 8))
            let finding = isUnclean ? "torn tail" : "damaged"
            #expect(verified.output.hasPrefix("\(finding): f: at byte \(file.length): "), "\(verified)")
            #expect(try vaultfs("export", [plain + "/exported"]).exitCode == (isUnclean ? 0 : 11))
            #expect(try extract(["--all", plain + "/extracted"]) == (isUnclean ? 0 : 11))
            #expect(try vaultfs("export", [plain + "/saved", "--damaged"]).exitCode == (isUnclean ? 0 : 8))
            #expect(try extract(["--all", plain + "/rescued", "--damaged"]) == (isUnclean ? 0 : 8))
            let size = try run("size", at: plain + "/saved/f")
            #expect(try size == run("size", at: plain + "/rescued/f"))
            #expect(isUnclean == (size == "\(file.length)\n"))
            for arguments in [["-o", "ro"], []] {
                try vault.mount(arguments)
                #expect(try run("read") == (isUnclean ? "0\n" : "error 5\n"))
                if arguments.isEmpty {
                    // After a power cut the tail may go, because it was never fsynced.
                    #expect(try run("write") == (isUnclean || file.tail == .bytes ? "\n" : "\(Self.added)\n"))
                    #expect(try run("read") == "0\n")
                }
                try vault.unmount()
            }
            let after = try vault.read(["--require-sealed"])
            #expect(after.exitCode == 0 && after.errors.isEmpty, "\(after)")
            #expect(try vaultfs("verify").output.contains("no damage"))
        }
    }
}
