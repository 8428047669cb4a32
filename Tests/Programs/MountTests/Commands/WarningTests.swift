import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Warnings at mount, and the form of the log.
    @Suite struct WarningsAndLog {
        private static let warning = "vaultfs: warning: this format cannot detect tampering\n"

        @Test("a view warns once; hls names the keys that are missing, with their URLs as they are")
        func views() throws {
            let hls = try HlsView()
            let (missing, found) = ("https://host.example/a//missing.key?token", "keys/found.bin")
            for (number, uri) in zip(UInt8(1)..., [missing, found, missing]) {
                try hls.segment("\(number).ts", key: number, vector: 0)
                try hls.playlist("\(number).m3u8", [HlsView.keyLine(uri)] + HlsView.lines("\(number).ts"))
            }
            try hls.write(found, HlsView.key(2))
            let key =
                "vaultfs: warning: no key for https://host.example/a//missing.key?…: there is no key file missing.key"
            let result = try hls.view.tryMount("hls").succeeded()
            let lines = result.errors.split(separator: "\n")
            #expect(lines.count == 2, "\(result)")
            #expect(result.errors.hasPrefix(Self.warning), "\(result)")
            #expect(lines.last?.hasPrefix(key) == true, "\(result)")
            let status = try hls.view.vaultfs(["status", hls.view.mountpoint]).succeeded()
            #expect(!status.output.contains("https:/h"), "\(status)")
            try hls.view.unmount()
            // Keys of a command are fetched only when needed.
            let commanded = try hls.view.tryMount("hls", ["--key-command", "exit 1"]).succeeded()
            #expect(commanded.errors == Self.warning, "\(commanded)")
            try hls.view.unmount()
        }

        /// Mounts in the foreground, unmounts, and returns what it logged.
        private func log(_ vault: VaultUnderTest, _ arguments: [String], _ environment: [String: String] = [:]) throws
            -> String
        {
            let process = try vault.account.command(
                [vault.account.binary, "mount", "-f", vault.vault, vault.mountpoint, "--passfile", vault.passfile]
                    + arguments, environment: vault.environment.merging(environment) { $1 }
            ).start()
            defer { process.kill(SIGKILL) }
            // An unmount before the first answer would count as a failed mount.
            try poll("the first answer") {
                let status = try vault.isMounted() ? vault.vaultfs(["status", vault.mountpoint, "--json"]) : nil
                return status.map { $0.exitCode == 0 && !$0.output.contains(/"served" ?: ?0\b/) } ?? false
            }
            Products.countMount()
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            #expect(process.wait(timeout: .seconds(20)) == 0)
            return process.errors
        }

        @Test("a log line names the program once; --log-level leaves out what is below")
        func log() throws {
            let vault = try VaultUnderTest()
            let lines = try log(vault, []).split(separator: "\n")
            #expect(lines.contains { $0.contains("mounted \(vault.vault) at ") }, "\(lines)")
            for line in lines {
                #expect(line.contains(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ vaultfs: [a-z]/), "\(line)")
                #expect(!line.contains("[vaultfs]") && !line.contains(/vaultfs:.*vaultfs:/), "\(line)")
            }
            for level in [["--log-level", "error"], ["-o", "log_level=error"]] {
                #expect(try log(vault, level) == "")
            }
            expectFailure(try vault.tryMount(["--log-level", "loud"]), .usage)
            expectFailure(
                try vault.tryMount(["-o", "log_level=loud"]), .usage, naming: "one of the following:\n  - debug\n")
        }

        @Test("verify: another program's file is a note, unsealed files are one line")
        func notes() throws {
            let vault = try VaultUnderTest()
            let verify = ["verify", vault.vault, "--passfile", vault.passfile]
            try vault.mount()
            let copy = "\(vault.plain)/copy"
            let script = """
                cd $1; for i in 1 2 3; do exec {fd}>f$i; head -c 5000 /dev/urandom >&$fd; done; sync
                cp -a $2 $3; rm -f $3/vaultfs.lock
                """
            try vault.account.run(["bash", "-ec", script, "sh", vault.mountpoint, vault.vault, copy]).succeeded()
            try vault.unmount()
            try vault.account.run(["mkdir", "\(vault.vault)/.stfolder"]).succeeded()
            try vault.account.run(["touch", "\(vault.vault)/.DS_Store"]).succeeded()
            let result = try vault.vaultfs(verify).succeeded()
            let lines = Set(result.output.split(separator: "\n").dropLast().map(String.init))
            #expect(
                lines == [
                    "foreign: .DS_Store: another program's: the vault ignores it",
                    "foreign: .stfolder: another program's: the vault ignores it",
                ], "\(result)")
            #expect(result.output.hasSuffix(": no damage, 2 notes\n"), "\(result)")
            expectFailure(try vault.vaultfs(verify + ["--strict"]), .damageFound, naming: "2 files of other programs")
            let ofCopy = ["verify", copy, "--passfile", vault.passfile]
            let short = try vault.vaultfs(ofCopy).succeeded().output.split(separator: "\n")
            #expect(short.count(where: { $0.hasPrefix("unsealed: ") }) == 1, "\(short)")
            #expect(short.contains { $0.hasPrefix("unsealed: 3 files") }, "\(short)")
            let long = try vault.vaultfs(ofCopy + ["--verbose"]).succeeded().output.split(separator: "\n")
            #expect(long.count(where: { $0.hasPrefix("unsealed: f") }) == 3, "\(long)")
        }
    }
}
