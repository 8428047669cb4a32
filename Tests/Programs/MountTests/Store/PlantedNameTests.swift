import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Other objects under vaultfs's names, planted by an attacker who can write to the store but has no key.
    @Suite struct PlantedNames {
        enum Kind: CaseIterable {
            case linkToFile, linkToDirectory, fifo, directory
        }

        /// Every name in the sources, each a constant of type Component. A name's beginning gets an end.
        static let names: [String] = {
            let sources = "\(Products.root)/Sources"
            let declaration = /: Component = "([^"]+)"/
            var names: Set<String> = []
            for case let path as String in FileManager.default.enumerator(atPath: sources) ?? .init() {
                guard path.hasSuffix(".swift"),
                    let text = try? String(contentsOfFile: "\(sources)/\(path)", encoding: .utf8)
                else { continue }
                names.formUnion(text.matches(of: declaration).map { String($0.1) })
            }
            let ended = names.map { $0.hasSuffix("-") || $0.hasSuffix(".") ? $0 + "1" : $0 }
            return ended.sorted() + ["vaultfs.long." + String(repeating: "A", count: 43) + ".name"]
        }()

        /// The names without which a vault cannot be opened, so they are planted one at a time.
        static let needed = ["vaultfs.json", "vaultfs.dir", "vaultfs.log", "vaultfs.lock", "vaultfs.rekey"]

        private let vault: VaultUnderTest
        private var outside: String { "\(vault.store.path)/outside" }

        init() throws {
            vault = try VaultUnderTest().mounted()
            let long = String(repeating: "n", count: 200)
            try sh("mkdir sub; echo hello > file; echo inner > sub/file; echo long > \(long)", in: vault.mountpoint)
            try vault.unmount()
            try sh("mkdir outside; cd outside; mkdir directory; cp ../vault/vaultfs.* .", in: vault.store.path)
            // Make everything here that vaultfs removes by a name of its own.
            for name in Self.names { try sh("[ -e \(name) ] || echo precious > \(name)", in: outside) }
            try sh("echo precious > precious; echo precious > directory/file", in: outside)
        }

        @discardableResult
        private func sh(_ script: String, in directory: String) throws -> String {
            try Command(["sh", "-c", "cd '\(directory)' && { \(script); }"]).run().output
        }

        private func state() throws -> String {
            try sh("find . -printf '%p %y %s %m %T@\\n' | sort; find . -type f | sort | xargs cat | cksum", in: outside)
        }

        private func plant(_ names: [String], _ kind: Kind, in directory: String) throws {
            for name in names {
                let script =
                    switch kind {
                    case .linkToFile:
                        "ln -s '\(outside)/'$([ -e '\(outside)/\(name)' ] && echo '\(name)' || echo precious) '\(name)'"
                    case .linkToDirectory: "ln -s '\(outside)' '\(name)'"
                    case .fifo: "mkfifo '\(name)'"
                    case .directory:
                        "mkdir '\(name)'; for n in \(Self.names.joined(separator: " ")); do ln -s '\(outside)' '\(name)/'$n; done"
                    }
                try sh("rm -rf '\(name)'; \(script)", in: directory)
            }
        }

        /// Runs every command, and expects each to end. Most report their findings.
        /// - Parameter isOpenable: false if the vault lacks a necessary name, so only some commands go far.
        private func runEverything(isOpenable: Bool) throws {
            let (path, secret) = (vault.vault, ["--passfile", vault.passfile])
            let other = "\(vault.store.path)/other"
            _ = try vault.vaultfs(["init", other] + secret + ["--scrypt-logn", "10", "--no-recovery-key"])
            _ = try vault.vaultfs(["info", path])
            for arguments in [["-o", "ro"], []] {
                guard try vault.tryMount(arguments).exitCode == 0 else { continue }
                _ = try vault.account.run(["ls", "-lR", vault.mountpoint])
                _ = try? sh(
                    "echo new > sub/new; cat file sub/file; rm -f sub/new; rmdir sub/none", in: vault.mountpoint)
                for command in ["status", "lock", "sync", "protect"] {
                    _ = try vault.vaultfs([command, vault.mountpoint])
                }
                try vault.unmount()
            }
            if !isOpenable { _ = try vault.vaultfs(["verify", path, "--repair", "--yes"] + secret) }
            if !isOpenable { return }
            let source = vault.store.path + "/plain"
            try sh("echo imported > imported", in: source)
            for command in [
                ["verify", path] + secret, ["import", source, path] + secret,
                ["export", path, "\(source)/out"] + secret,
                ["slot", "list", path],
                ["slot", "add", path] + secret + ["--new-keyfile", vault.passfile],
                ["verify", path, "--repair", "--yes"] + secret, ["export", path, "\(source)/out2"] + secret,
                ["rekey", path, "--yes"] + secret, ["verify", path] + secret,
            ] {
                _ = try vault.vaultfs(command)
            }
            try sh("rm -rf out out2", in: source)
        }

        @Test("Nothing outside changes, and no command waits", arguments: Kind.allCases)
        func everyName(_ kind: Kind) throws {
            #expect(Self.names.count > 12 && Self.needed.allSatisfy(Self.names.contains), "\(Self.names)")
            let before = try state()
            let others = Self.names.filter { !Self.needed.contains($0) }
            let saved = try vault.archive()
            for names in [others] + Self.needed.map({ [$0] }) {
                try sh("rm -rf vault other; mkdir vault other; tar -C vault -xpf -", in: vault.store.path, saved)
                let directories = try sh("find . -mindepth 1 -maxdepth 1 -type d", in: vault.vault).split(
                    separator: "\n")
                #expect(directories.count == 1)
                for directory in directories { try plant(names, kind, in: "\(vault.vault)/\(directory)") }
                try plant(names, kind, in: vault.vault)
                if names == others { try plant(names, kind, in: "\(vault.store.path)/other") }
                try runEverything(isOpenable: names == others)
                #expect(try state() == before, "\(names)")
            }
        }

        private func sh(_ script: String, in directory: String, _ archive: [UInt8]) throws {
            let file = "\(directory)/archive"
            try Data(archive).write(to: URL(fileURLWithPath: file))
            try Command(["sh", "-c", "cd '\(directory)' && \(script) < archive && rm archive"]).run().succeeded()
        }
    }
}
