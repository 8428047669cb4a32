import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The README's commands for a new user. They need a user without other mounts, because `vaultfs lock` and
    /// `vaultfs unmount --all` concern all mounts of a user, also those of tests that run at the same time.
    @Suite(.enabled(if: Account.newcomer != nil, "takes root, for a user without other mounts")) struct Readme {
        private static let readme = "\(Products.root)/README.md"

        /// Returns the lines of the code blocks under a heading.
        private func commands(under heading: String) throws -> [String] {
            let text = try String(contentsOfFile: Self.readme, encoding: .utf8)
            let section = try #require(text.split(separator: "\n## ").first { $0.hasPrefix("\(heading)\n") })
            let blocks = section.split(separator: "```", omittingEmptySubsequences: false).enumerated()
            return blocks.filter { !$0.offset.isMultiple(of: 2) }.flatMap { block in
                block.element.split(separator: "\n").map(String.init)
            }
        }

        @Test("its commands, in an empty home, do what it says")
        func commands() throws {
            let account = try #require(Account.newcomer)
            let home = try TemporaryDirectory()
            try home.write("passphrase", VaultUnderTest.passphrase)
            chmod(home.appending("passphrase"), 0o600)
            try Command(["chown", "-R", "\(Account.newcomerID)", home.path]).run().succeeded()
            // Stands in for the person who types the passphrase and looks at the mount after each command.
            var script = """
                set -e
                trap 'status=$?; fusermount3 -uz ~/Private 2>/dev/null || :; exit $status' EXIT
                vaultfs() {
                    case $1 in init | mount) set -- "$@" --passfile ~/passphrase ;; esac
                    "$BINARY" "$@"
                }

                """
            let looks = [
                "init": "test -s ~/Vault/vaultfs.json",
                "mount": "mountpoint ~/Private && echo text >~/Private/file",
                "lock": "! cat ~/Private/file 2>/dev/null",
                "unlock": "test $(cat ~/Private/file) = text",
                "unmount": "! mountpoint ~/Private",
            ]
            let lines = try commands(under: "Two commands")
            #expect(lines.count == 5)
            for line in lines {
                let words = line.split(separator: " ")
                try #require(words.count > 1 && words[0] == "vaultfs")
                script +=
                    "\(line)\n\(try #require(looks[String(words[1])])) || { echo 'after: \(line)' >&2; exit 1; }\n"
            }
            Products.countMount()
            let environment = ["HOME": home.path, "XDG_RUNTIME_DIR": home.path, "BINARY": account.binary]
            try account.run(["bash", "-c", script], environment: environment, directory: home.path).succeeded()
        }
    }
}
