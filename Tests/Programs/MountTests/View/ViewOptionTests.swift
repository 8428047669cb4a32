import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Options of views, with effect or refused.
    @Suite struct ViewOptions {
        @Test("a playlist alone is refused, because its segments would be missing, with the command that works")
        func playlistAlone() throws {
            let view = try ViewUnderTest()
            let playlist = "\(view.source)/index.m3u8"
            try Data("#EXTM3U\n".utf8).write(to: URL(fileURLWithPath: playlist))
            expectFailure(
                try view.tryMount("hls", source: playlist), .usage, naming: "index.m3u8", "directory",
                "vaultfs view hls \(view.source) MOUNTPOINT")
        }

        @Test("names without .enc: by default for openssl, by --strip for others, never if both names are there")
        func strippedNames() throws {
            let view = try ViewUnderTest().made("salted", ["aes-256-cbc", "-pbkdf2", "20000"])
            let prepare = """
                cd $1
                for name in film.mp4.enc both both.enc .enc; do cp file-20000 $name; done
                mkdir d.enc
                """
            try view.account.run(["sh", "-ec", prepare, "sh", view.source]).succeeded()
            for (options, names) in [
                ([], ".enc both both.enc d.enc file-20000 film.mp4"),
                (["--strip", ""], ".enc both both.enc d.enc file-20000 film.mp4.enc"),
                (["--strip", ".mp4.enc"], ".enc both both.enc d.enc file-20000 film"),
            ] {
                try view.mount("openssl", ["--pbkdf2", "--passfile", view.passfile] + options)
                let check = "cd $1; for f in *; do test -d $f || cmp $f $2; done; ls -A"
                let original = "\(view.originals)/file-20000"
                let listed = try view.account.run(["sh", "-ec", check, "sh", view.mountpoint, original]).succeeded()
                #expect(listed.output.split(separator: "\n").sorted().joined(separator: " ") == names)
                try view.unmount()
            }
        }

        @Test("fstab's options for the passphrase")
        func passphraseWithinOptions() throws {
            let view = try ViewUnderTest().made("salted", ["aes-256-cbc", "-pbkdf2", "20000"])
            try view.mount("openssl", ["--pbkdf2-iterations", "10000", "-o", "passfile=\(view.passfile)"])
            try view.account.run([
                "cmp", "\(view.mountpoint)/file-20000", "\(view.originals)/file-20000",
            ]).succeeded()
            try view.unmount()
            expectFailure(
                try view.tryMount("openssl", ["-o", "keyfile=\(view.passfile)"]), .usage, naming: "--key-file")
        }

        @Test("a key from a pipe, and a lock that forgets it: refused, because no unlock could restore it")
        func keyFromPipe() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            let launcher = ["sh", "-c", "cat \(view.keys)/binary | \"$@\"", "sh"]
            let options = ["--iv", ViewCase.vector, "--key-file", "/dev/stdin"]
            expectFailure(
                try view.tryMount("cbc", options + ["--on-lock", "forget"], launcher: launcher), .usage,
                naming: "--key-file", "--on-lock refuse")
            try view.mount("cbc", options, launcher: launcher)
            try view.account.run([
                "cmp", "\(view.mountpoint)/file-20000", "\(view.originals)/file-20000",
            ]).succeeded()
            try view.unmount()
        }

        @Test("--prewarm continues after a directory that cannot be read", arguments: Settings.accounts)
        func prewarmBesideUnreadable(setting: Setting) throws {
            let view = try ViewUnderTest(setting.account()).made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            try view.account.run([
                "sh", "-c", "cd \(view.source); mkdir a z; cp file-20000 z/; chmod 0 a",
            ]).succeeded()
            let script = "echo $VAULTFS_KEY_PATH >> \(view.plain)/asked; cat \(view.keys)/binary"
            try view.mount("cbc", ["--iv", ViewCase.vector, "--key-command", script, "--prewarm"])
            try poll("the keys") {
                let asked = (try? String(contentsOfFile: "\(view.plain)/asked", encoding: .utf8)) ?? ""
                return Set(asked.split(separator: "\n")) == ["file-20000", "z/file-20000"]
            }
            try view.unmount()
            try view.account.run(["chmod", "700", "\(view.source)/a"]).succeeded()
        }

        @Test(
            "a key given at the mount is not in memory after a lock that forgets, even if no file was opened",
            .enabled(if: Products.isRoot, "reads /proc/PID/mem"))
        func keyOfNoOpenFile() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-256-cbc", "pkcs7", "20000"])
            // The test turns memfd_secret(2) off, because such memory cannot be read like this.
            try view.mount(
                "cbc", ["--iv", ViewCase.vector, "--key-file", "\(view.keys)/binary", "--on-lock", "forget"],
                launcher: [Products.python, Products.program("commands/without_call.py"), "memfd_secret"])
            let key = try String(contentsOfFile: "\(view.keys)/hex", encoding: .utf8).prefix(64)
            #expect(try found(key, view) > 0)
            try view.vaultfs(["lock", view.mountpoint]).succeeded()
            #expect(try found(key, view) == 0)
            try view.unmount()
        }

        /// Counts the occurrences of a hexadecimal byte string in the daemon's memory.
        private func found(_ needle: Substring, _ view: ViewUnderTest) throws -> Int {
            let daemon = try #require(view.daemon)
            let output = try view.account.run(
                [Products.python, Products.program("modules/scan_memory.py"), "\(daemon)"], input: String(needle)
            ).succeeded().output
            return try #require(output.split(separator: " ").first.flatMap { Int($0) }, "\(output)")
        }
    }
}
