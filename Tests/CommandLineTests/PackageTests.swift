import Foundation
import TestSupport
import Testing

/// The package that `scripts/package` makes of the program under test, which is not the program that the script would
/// build. `scripts/system/package` tests that the package installs in a Debian without Swift.
@Suite(.timeLimit(.minutes(20))) struct PackageTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    /// The path of the package.
    private func package(_ output: String) throws -> String {
        // Compression would take most of the time.
        let result = try Command(
            [
                "\(Products.tests)/../scripts/package", "--binary", Products.binary, "--output",
                directory.appending(output),
            ], environment: ["DPKG_DEB_COMPRESSOR_TYPE": "none", "SOURCE_DATE_EPOCH": "86400"], timeout: .seconds(120)
        ).run().succeeded()
        return try #require(result.output.split(separator: "\n").last.map(String.init))
    }

    private func field(_ name: String, of package: String) throws -> String {
        try Command(["dpkg-deb", "--field", package, name]).run().succeeded().output
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    @Test("the same source and time make the same package")
    func sameSourceAndTimeMake() throws {
        let packages = try [package("a"), package("b")]
        try Command(["cmp"] + packages).run().succeeded()
    }

    @Test("its files, and its dependencies")
    func itsFiles() throws {
        let package = try package("package")
        let version = try Command([Products.binary, "--version"]).run().succeeded().output
        #expect(try field("Version", of: package) == version.split(separator: " ")[1])
        let needs = try field("Depends", of: package)
        for name in ["libc6 (>= ", "libfuse3-3 (>= ", "libssl3", "fuse3"] { #expect(needs.contains(name), "\(needs)") }

        #expect(try field("Recommends", of: package) == "python3-gi, python3-cryptography")
        let suggested = try field("Suggests", of: package)
        #expect(suggested.hasPrefix("tpm2-tools, fido2-tools, polkitd, gir1.2-gtk-3.0, gir1.2-ayatana"), "\(suggested)")

        let listing = try Command(["dpkg-deb", "--contents", package]).run().succeeded().output
        for line in listing.split(separator: "\n") {
            #expect(line.contains(" root/root ") && !line.dropFirst(5).prefix(5).contains("w"), "\(line)")
        }
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--extract", package, tree]).run().succeeded()
        // Checks as a user would after installation.
        let checks = """
            set -e
            cd \(tree)/usr
            bin/vaultfs --version
            for provider in vaultfs-tpm2 vaultfs-fido2; do
                bin/$provider --help | grep -q "^usage: $provider enroll "
                ! bin/$provider --help 2>&1 >/dev/null | grep .
                gzip -t share/man/man1/$provider.1.gz
            done
            test -x bin/vaultfs-agent
            test -x bin/vaultfs-reader
            test -x bin/vaultfs-tray
            grep -q '^Exec=vaultfs-tray$' share/applications/vaultfs-tray.desktop
            test -s share/icons/hicolor/scalable/apps/vaultfs.svg
            python3 -m json.tool share/SiriKali/backends/vaultfs.json >/dev/null
            grep -q '^ExecStart=/usr/bin/vaultfs-agent$' lib/systemd/user/vaultfs-agent.service
            gzip -t share/man/man1/vaultfs.1.gz share/man/man1/vaultfs-mount.1.gz share/man/man1/vaultfs-agent.1.gz share/man/man1/vaultfs-reader.1.gz share/man/man7/vaultfs-backup.7.gz share/man/man7/vaultfs-sync.7.gz share/doc/vaultfs/changelog.gz
            bash -n share/bash-completion/completions/vaultfs
            grep -q '^#compdef vaultfs' share/zsh/vendor-completions/_vaultfs
            grep -q -- "-l 'guard-mountpoint'" share/fish/vendor_completions.d/vaultfs.fish
            test -s share/doc/vaultfs/copyright
            (
                cd share/doc/vaultfs
                gzip -d <README.md.gz >README.md
                for page in README.md Manual/*.md; do
                    for link in $(grep -oE '\\]\\([^)]+\\)' $page | tr -d '])(' | grep -v ^https:); do
                        case $link in
                            /*) test -s \(tree)$link ;;
                            *) test -e $(dirname $page)/$link ;;
                        esac || { echo "$page: $link" >&2; exit 1; }
                    done
                done
            )
            for unit in system/vaultfs@.service user/vaultfs@.service system/vaultfs-lock-on-sleep.service; do
                grep -q '^ExecStart=/usr/bin/vaultfs ' lib/systemd/$unit
            done
            ! grep -r /usr/local/bin lib/systemd
            """
        try Command(["bash", "-c", checks]).run().succeeded()
    }
}
