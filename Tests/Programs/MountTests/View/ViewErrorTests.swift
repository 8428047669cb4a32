import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Unreadable files of a view: each has its own error, by name, and all other files work.
    @Suite struct ViewErrors {
        private static let iv = ["--iv", ViewCase.vector]

        /// A file, and the error of its open, or nil.
        private struct Bad {
            var name: String
            var errno = "Input/output error"
            var reason: String
        }

        /// Expects all files in the listing, readable good ones, and for the others errors explained by status and log.
        private func expect(_ bad: [Bad], good: [String], on view: ViewUnderTest) throws {
            let listed = try view.account.run(["ls", "-lA", view.mountpoint]).succeeded().output
            for file in bad {
                #expect(listed.contains(" \(file.name)\n"), "\(listed)")
                let result = try view.account.run(["cat", "\(view.mountpoint)/\(file.name)"])
                #expect(result.exitCode == 1 && result.errors.contains(file.errno), "\(result)")
                #expect(result.output.isEmpty, "\(file.name)")
                let problems = try view.problems()
                let isNamed = { (line: String) in line.contains(file.name) && line.contains(file.reason) }
                #expect(problems.contains(where: isNamed), "\(file.name): \(problems)")
                #expect(view.log.split(separator: "\n").map(String.init).contains(where: isNamed), "\(view.log)")
            }
            for name in good {
                try view.account.run(["cmp", "\(view.mountpoint)/\(name)", "\(view.originals)/\(name)"]).succeeded()
            }
            try view.unmount()
        }

        private func shell(_ script: String, in view: ViewUnderTest) throws {
            try view.account.run(["sh", "-ec", script], directory: view.store.path).succeeded()
        }

        private static let spoil = """
            cd source
            head -c 5000 file-20000 > not-16
            head -c 4096 file-20000 > cut
            : > empty
            head -c 4096 /dev/zero > zeros
            """

        @Test("one stream: cut, of an odd length, empty, badly padded")
        func stream() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000", "5"])
            try shell(Self.spoil, in: view)
            try view.mountInForeground("cbc", Self.iv + ["--key-file", "\(view.keys)/binary"])
            try expect(
                [
                    Bad(name: "not-16", reason: "5000 bytes of ciphertext, not a multiple of 16"),
                    Bad(name: "cut", reason: "no valid padding"), Bad(name: "zeros", reason: "no valid padding"),
                    Bad(name: "empty", reason: "no ciphertext"),
                ], good: ["file-20000", "file-5"], on: view)
        }

        @Test("chunks: cut, of an odd length, badly padded; an empty file is valid")
        func chunks() throws {
            let view = try ViewUnderTest().made("chunks", ["4096", "aes-128-cbc", "pkcs7", "20000", "0"])
            try shell(Self.spoil, in: view)
            try view.mountInForeground(
                "cbc-chunks", Self.iv + ["--chunk-size", "4K", "--key-file", "\(view.keys)/binary"])
            try expect(
                [
                    Bad(name: "not-16", reason: "not a multiple of 16"), Bad(name: "cut", reason: "no valid padding"),
                    Bad(name: "zeros", reason: "no valid padding"),
                ], good: ["file-20000", "file-0"], on: view)
        }

        @Test("openssl: no header, cut, another passphrase")
        func openssl() throws {
            let view = try ViewUnderTest().made("salted", ["aes-256-cbc", "-pbkdf2", "20000"])
            try shell(
                Self.spoil
                    + """

                    head -c 10 file-20000 > short
                    openssl enc -aes-256-cbc -pbkdf2 -pass pass:another -in ../originals/file-20000 -out another
                    """, in: view)
            try view.mountInForeground("openssl", ["--pbkdf2-iterations", "10000", "--passfile", view.passfile])
            // A wrong passphrase gives bad padding in 255 of 256 cases. This may be the other one.
            let isTold = try view.account.run(["cat", "\(view.mountpoint)/another"]).exitCode != 0
            #expect(try isTold == view.problems().contains { $0.hasPrefix("another: ") })
            try expect(
                [
                    Bad(name: "not-16", reason: "not a multiple of 16"), Bad(name: "cut", reason: "no valid padding"),
                    Bad(name: "zeros", reason: "Salted__"), Bad(name: "empty", reason: "Salted__"),
                    Bad(name: "short", reason: "Salted__"),
                ], good: ["file-20000"], on: view)
        }

        @Test("a wrong key")
        func wrongKey() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            try shell("printf 0123456789abcdef > keys/wrong; rm originals/*", in: view)
            try view.mountInForeground("cbc", Self.iv + ["--key-file", "\(view.keys)/wrong"])
            try expect(
                [Bad(name: "file-20000", reason: "the key is wrong, or the file is damaged or cut")], good: [], on: view
            )
        }

        @Test("keys of single files: missing, of the wrong length, a directory, outside the source")
        func manifestKeys() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            try shell(
                """
                cd source; mkdir keys; cp ../keys/binary keys/good; printf 12345 > keys/short; mkdir keys/directory
                head -c 32 /dev/zero > keys/long; mkfifo keys/fifo; ln -s ../../keys/binary keys/link
                for name in missing short directory long fifo link none; do cp file-20000 of-$name; done
                """, in: view)
            let entries = ["missing", "short", "directory", "long", "fifo", "link"].map {
                #""of-\#($0)": {"key": "keys/\#($0)", "iv": "\#(ViewCase.vector)", "cipher": "aes-128-cbc"}"#
            }
            let good = #""file-*": {"key": "keys/good", "iv": "\#(ViewCase.vector)"}"#
            try Data(#"{"format": "cbc", "files": {\#((entries + [good]).joined(separator: ", "))}}"#.utf8)
                .write(to: URL(fileURLWithPath: "\(view.source)/view.json"))
            try view.mountInForeground("cbc")
            let noKey = "Required key not available"
            try expect(
                [
                    Bad(name: "of-missing", errno: noKey, reason: "keys/missing"),
                    Bad(name: "of-short", errno: noKey, reason: "keys/short has 5 bytes"),
                    Bad(name: "of-directory", errno: noKey, reason: "keys/directory"),
                    Bad(name: "of-long", errno: noKey, reason: "keys/long has 32 bytes"),
                    Bad(name: "of-fifo", errno: noKey, reason: "keys/fifo"),
                    Bad(name: "of-link", errno: noKey, reason: "keys/link"),
                    Bad(name: "of-none", reason: "no initial vector"),
                ], good: ["file-20000"], on: view)
        }

        @Test("a problem that was fixed is no longer reported")
        func repaired() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            try shell("cp source/file-20000 whole; head -c 4096 whole > source/file-20000", in: view)
            try view.mount("cbc", Self.iv + ["--key-file", "\(view.keys)/binary"])
            #expect(try view.account.run(["cat", "\(view.mountpoint)/file-20000"]).exitCode == 1)
            #expect(try view.problems().count == 1)
            try shell("cp whole source/file-20000", in: view)
            try view.account.run(["cmp", "\(view.mountpoint)/file-20000", "\(view.originals)/file-20000"]).succeeded()
            #expect(try view.problems().isEmpty)
        }

        @Test("if nothing can work, nothing is mounted")
        func noMount() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            try shell("umask 077; printf 12345 > keys/short; mkdir keys/directory; mkfifo keys/fifo", in: view)
            let iv = Self.iv
            let key = ["--key-file", "\(view.keys)/binary"]
            expectFailure(try view.tryMount("cbc", iv), .usage, naming: "--key-file")
            expectFailure(try view.tryMount("cbc", key), .usage, naming: "--iv")
            expectFailure(
                try view.tryMount("cbc", iv + ["--key-file", "\(view.keys)/none"]), .failure,
                naming: "\(view.keys)/none", "No such file")
            expectFailure(
                try view.tryMount("cbc", iv + ["--key-file", "\(view.keys)/short"]), .failure,
                naming: "\(view.keys)/short", "5 bytes")
            expectFailure(
                try view.tryMount("cbc", iv + key + ["--cipher", "aes-256-cbc"]), .failure, naming: "16 bytes")
            expectFailure(
                try view.tryMount("cbc", iv + ["--key-file", "\(view.keys)/directory"]), .failure,
                naming: "\(view.keys)/directory", "directory")
            expectFailure(
                try view.tryMount("cbc", iv + key, source: "\(view.source)/none"), .failure,
                naming: "\(view.source)/none")
            expectFailure(
                try view.tryMount("cbc", iv + key, source: "\(view.keys)/fifo"), .failure, naming: "neither")
            expectFailure(
                try view.tryMount("openssl", ["--passfile", "\(view.keys)/none"]), .failure, naming: "none")
            for text in [
                "{", "{}", #"{"format": "cbc", "files": {"a": {"kye": "x"}}}"#, #"{"format": "hls", "files": {}}"#,
            ] {
                try Data(text.utf8).write(to: URL(fileURLWithPath: "\(view.source)/view.json"))
                expectFailure(try view.tryMount("cbc", iv + key), .failure, naming: "view.json")
            }
            #expect(try !view.isMounted())
        }

        @Test("options that do not fit together are wrong usage")
        func usage() throws {
            let view = try ViewUnderTest()
            let key = ["--key-file", "\(view.keys)/binary"]
            for (format, options) in [
                ("openssl", key), ("cbc", ["--chunk-size", "1"] + key), ("cbc-chunks", ["--iv-in-file"] + key),
                ("cbc", ["--pbkdf2-iterations", "10"] + key), ("cbc", Self.iv + key + ["--kdf", "sha256"]),
                ("cbc", ["--iv", "00"] + key), ("ecb", key), ("cbc-chunks", key + ["--chunk-size", "0"]),
                ("cbc-chunks", key + ["--chunk-size", "17", "--padding", "none"]),
                ("cbc-chunks", ["--kdf", "sha256", "--cipher", "aes-128-cbc"]),
                ("cbc-chunks", key + ["--passfile", view.passfile]),
            ] {
                #expect(try view.tryMount(format, options).exitCode == Failure.usage.rawValue, "\(format) \(options)")
            }
        }
    }
}
