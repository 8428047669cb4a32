import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The expiry of the slot with which a mount was opened.
    @Suite struct Leases {
        private let vault: VaultUnderTest
        private let file: String
        /// The secret of slot 2, which has no expiry.
        private let owner = "owner"
        private let fromInput = ["--passfile", "/dev/fd/0"]

        init() throws {
            vault = try VaultUnderTest()
            file = "\(vault.mountpoint)/file"
            try vault.vaultfs(
                ["slot", "add", vault.vault, "--passfile", vault.passfile, "--new-passfile", "/dev/fd/0"]
                    + ["--scrypt-logn", "10"], input: owner
            ).succeeded()
        }

        private func mount() throws {
            try vault.mount(["--lock-file", "\(vault.plain)/device.lock"])
            try "text".write(toFile: file, atomically: false, encoding: .utf8)
        }

        /// Reads a byte, and returns 0 or the error.
        private func read(_ descriptor: Int32) -> Int32 {
            var byte: UInt8 = 0
            return pread(descriptor, &byte, 1, 0) == 1 ? 0 : errno
        }

        @Test("open files get EKEYEXPIRED, and the expired secret opens no more; another slot's secret unlocks")
        func expires() throws {
            func expire(_ time: String) throws {
                try vault.vaultfs(
                    ["slot", "change", vault.vault, "--passfile", vault.passfile, "--keep-secret", "--expires", time]
                        + ["--scrypt-logn", "10"]
                ).succeeded()
            }
            try expire("1h")
            try mount()
            let descriptor = open(file, O_RDONLY | O_CLOEXEC)
            #expect(read(descriptor) == 0)
            // Begin to count only now that everything is set up, however long that took.
            try expire("2s")
            try poll("the expiry", timeout: .seconds(60)) { read(descriptor) == EKEYEXPIRED }
            #expect(access(file, F_OK) != 0 && errno == EKEYEXPIRED)
            // Requests are refused from the expiry on, and the lock ends a moment later.
            try poll("the lock") {
                try vault.vaultfs(["status", vault.mountpoint]).output.contains("locked, the slot has expired")
            }
            let unlock = ["unlock", vault.mountpoint]
            expectFailure(
                try vault.vaultfs(unlock + ["--passfile", vault.passfile]), .wrongSecret, naming: "slot 1 expired at")
            if let daemon = vault.daemon { kill(daemon, SIGUSR2) }
            // The reply may precede the signal or follow it. The vault is locked in both cases.
            expectFailure(try vault.vaultfs(unlock + fromInput, input: "wrong"), .wrongSecret)
            #expect(read(descriptor) == EKEYEXPIRED)
            try poll("the unlock") { try vault.vaultfs(unlock + fromInput, input: owner).exitCode == 0 }
            #expect(read(descriptor) == 0)
            close(descriptor)
            try vault.unmount()
            expectFailure(try vault.tryMount(), .wrongSecret, naming: "slot 1 expired at")
        }

        @Test("an expiry that is moved forward, and the removal of an expiring slot, are noticed at once")
        func broughtForward() throws {
            func slot(_ action: String, _ options: [String]) throws {
                try vault.vaultfs(["slot", action, vault.vault] + fromInput + options, input: owner).succeeded()
            }
            let directory = try TemporaryDirectory()
            let guest = try directory.write("guest", String(repeating: "g", count: 40), mode: 0o600)
            let command = ["mount", vault.vault, vault.mountpoint, "--keyfile", guest]
            let lease = ["--new-keyfile", guest, "--expires"]
            for change in [["change", "3"] + lease + ["3s"], ["remove", "3"]] {
                try slot("add", lease + ["1h"])
                try vault.mounting(
                    [vault.account.binary] + command + ["--lock-file", "\(vault.plain)/device.lock"]
                ).succeeded()
                try "text".write(toFile: file, atomically: false, encoding: .utf8)
                try vault.vaultfs(["protect", "none", file]).succeeded()
                let descriptor = open(file, O_RDONLY | O_CLOEXEC)
                #expect(read(descriptor) == 0)
                try slot(change[0], Array(change[1...]))
                try poll("the end", timeout: .seconds(60)) { read(descriptor) == EKEYEXPIRED }
                close(descriptor)
                try vault.unmount()
                if change[0] == "change" { try slot("remove", ["3"]) }
            }
        }

        @Test("a play window starts with the mount; a renewed mount continues without the slot's secret")
        func window() throws {
            let change = ["slot", "change", vault.vault, "1"] + fromInput + ["--play-window"]
            func info() throws -> String { try vault.vaultfs(["info", vault.vault]).output }
            try vault.vaultfs(change + ["50s"], input: owner).succeeded()
            #expect(try info().contains("play window of 50 s, not started"))
            try mount()
            #expect(try info().contains("play window of 50 s, started"))
            try vault.vaultfs(change + ["1d"], input: owner).succeeded()
            // The daemon notices the change because it watches the vault's directory.
            try poll("the new window", timeout: .seconds(60)) { try info().contains("play window of 1 d 0 h, started") }
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "text")
            #expect(try vault.vaultfs(["status", vault.mountpoint]).output.contains("lease ends "))
            try vault.unmount()
            try vault.read().succeeded()
            try vault.vaultfs(change + ["1s"], input: owner).succeeded()
            // This mount is left alone until the lease ends.
            try vault.mount(["--lock-file", "\(vault.plain)/device.lock"])
            // The lease ends, and neither this mount nor a new one can renew it.
            try poll("the end", timeout: .seconds(60)) { access(file, F_OK) != 0 && errno == EKEYEXPIRED }
            let unlock = ["unlock", vault.mountpoint, "--passfile", vault.passfile]
            expectFailure(try vault.vaultfs(unlock), .wrongSecret, naming: "slot 1")
            try vault.unmount()
            expectFailure(try vault.tryMount(), .wrongSecret, naming: "slot 1")
            try vault.vaultfs(change + ["none"], input: owner).succeeded()
            #expect(try !info().contains("play window") && info().contains("none"))
        }
    }
}
