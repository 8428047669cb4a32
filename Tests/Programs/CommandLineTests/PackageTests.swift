import Foundation
import TestSupport
import Testing

/// The package made by `scripts/package` of the program under test, instead of one that the script would build.
/// `scripts/system/package` tests its installation in a Debian without Swift.
@Suite(.timeLimit(.minutes(60))) struct PackageTests {
    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
    }

    private static let root = Products.root

    /// Makes the package from the source in `root`, or with `--archive` in `options` the archive, and returns its path.
    /// `launcher` runs the script.
    private func package(
        _ output: String, options: [String] = [], root: String = Self.root, launcher: [String] = [],
        environment: [String: String] = [:]
    ) throws -> String {
        // Compression would take most of the time.
        let settings = ["DPKG_DEB_COMPRESSOR_TYPE": "none", "SOURCE_DATE_EPOCH": "86400"]
        let script = ["\(root)/scripts/package", "--binary", Products.binary, "--output", directory.appending(output)]
        let result = try Command(
            launcher + script + options, environment: settings.merging(environment) { $1 }, timeout: .seconds(120)
        ).run().succeeded()
        return try #require(result.output.split(separator: "\n").last.map(String.init))
    }

    private func field(_ name: String, of package: String) throws -> String {
        try Command(["dpkg-deb", "--field", package, name]).run().succeeded().output
            .trimmingCharacters(in: .whitespacesAndNewlines)
    }

    /// Makes the archive, and returns the directory in which it was unpacked.
    private func unpackedArchive() throws -> String {
        let archive = try package("archives", options: ["--archive"])
        try Command(["tar", "-C", directory.path, "-xzf", archive]).run().succeeded()
        return directory.appending((archive as NSString).lastPathComponent.replacing(".tar.gz", with: ""))
    }

    @Test(
        "the same source and time make the same package and archive, in another directory, time zone and umask",
        arguments: [[], ["--archive"]])
    func sameSourceAndTimeMake(options: [String]) throws {
        let copy = directory.appending("another directory/of the source")
        let copying =
            "mkdir -p \"$2\" && cd \"$1\" && tar --exclude=./.build --exclude=./.git -cf - . | tar -xf - -C \"$2\""
        try Command(["bash", "-c", copying, "bash", Self.root, copy]).run().succeeded()
        let first = try package("a", options: options)
        let second = try package(
            "b", options: options, root: copy, launcher: ["sh", "-c", "umask 077; exec \"$@\"", "sh"],
            environment: ["TZ": "Asia/Tokyo", "LC_ALL": "C"])
        try Command(["cmp", first, second]).run().succeeded()
    }

    @Test("the archive installs the package's files, with the prefix in them, lists them, and removes the same")
    func archiveInstalls() throws {
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--extract", package("package"), tree]).run().succeeded()
        let unpacked = try unpackedArchive()
        let checks = #"""
            set -eEuo pipefail
            trap 'echo "line $LINENO: $BASH_COMMAND" >&2' ERR
            cd "$1"
            # With the package's prefix, the files are the package's, apart from Debian's own.
            "$2/install.sh" --prefix /usr --destdir "$PWD/packaged" >listed
            find "$PWD/packaged" -type f | LC_ALL=C sort | cmp - listed
            install -D packaged/usr/share/zsh/{site-functions,vendor-completions}/_vaultfs
            cat >expected <<END
            Files packaged/usr/bin/vaultfs and tree/usr/bin/vaultfs differ
            Only in packaged/usr/lib: vaultfs
            Only in packaged/usr/share/doc/vaultfs: Apache-2.0
            Only in packaged/usr/share/doc/vaultfs: LGPL-2.1
            Only in packaged/usr/share/zsh: site-functions
            Only in tree/usr/lib/systemd/system: plocate-updatedb.service.d
            Only in tree/usr/share/doc/vaultfs: changelog.gz
            END
            { diff -qr -x copyright packaged/usr tree/usr || true; } | LC_ALL=C sort | diff - expected
            grep -q '^ The Apache License 2.0 is in the file Apache-2.0.$' packaged/usr/share/doc/vaultfs/copyright
            test -s packaged/usr/share/doc/vaultfs/Apache-2.0
            ldd packaged/usr/bin/vaultfs | grep -E '/packaged/usr/(bin/\.\./)?lib/vaultfs/libfuse3\.so\.3 ' >/dev/null

            # Another prefix is in all files that name one, compressed pages too, whatever the umask.
            mkdir -p there/usr/local/bin
            echo mine >there/usr/local/bin/other
            (umask 077; "$2/install.sh" --destdir there >listed)
            find "$PWD/there" -type f -not -name other | LC_ALL=C sort | cmp - listed
            cp -a there/usr/local copy
            [ -z "$(find copy/lib copy/share -type d -not -perm 755)" ]
            [ -z "$(find copy/lib copy/share -type f -not -perm 644)" ]
            [ -z "$(find copy/bin -name 'vaultfs*' -not -perm 755)" ]
            cd copy
            for unit in system/vaultfs@.service user/vaultfs@.service system/vaultfs-lock-on-sleep.service; do
                grep -q '^ExecStart=/usr/local/bin/vaultfs ' lib/systemd/$unit
            done
            grep -q '^ExecStart=/usr/local/bin/vaultfs-agent$' lib/systemd/user/vaultfs-agent.service
            grep -qF '"/usr/local/share/vaultfs"' bin/vaultfs-tray
            [[ $(gzip -dc share/man/man7/vaultfs-system.7.gz) == */usr/local/share/doc/vaultfs* ]]
            find lib share -name '*.gz' -exec gzip -d {} +
            left=$(grep -rE '/usr/(bin/vaultfs|share/|lib/systemd/)' lib share bin/vaultfs-* || true)
            [ -z "$left" ] || { echo "$left" >&2; exit 1; }
            cd "$1"

            # The removal takes these files alone.
            "$2/install.sh" --uninstall --destdir there >removed
            cmp listed removed
            [ "$(find there -type f)" = there/usr/local/bin/other ]
            [ -z "$(find there -path '*vaultfs*')" ]
            """#
        try Command(["bash", "-c", checks, "bash", directory.path, unpacked]).run().succeeded()
    }

    @Test("the archive's installer refuses a wrong option, and a system without the libraries, in one line")
    func installerRefuses() throws {
        let unpacked = try unpackedArchive()
        let prefix = directory.appending("prefix")
        func refusal(_ options: String...) throws -> String {
            let result = try Command(["\(unpacked)/install.sh"] + options).run()
            #expect(result.exitCode == 1 && result.output.isEmpty && !FileManager.default.fileExists(atPath: prefix))
            #expect(result.errors.split(separator: "\n").count == 1, "\(result)")
            return result.errors
        }
        #expect(try refusal("--prefix").contains(": usage: "))
        #expect(try refusal("--prefix", "relative").contains("must begin with a slash: relative"))
        #expect(try refusal("--prefix=\(prefix)/a;b").contains("can have only letters"))
        #expect(try refusal("--prefix", "/dev/null").contains("cannot make the directory /dev/null/bin"))
        #expect(try refusal("--uninstall", "--prefix", prefix).contains("none of the archive's files is below"))

        // A library without a file. The name has the same length, so the program stays whole.
        let rename = #"LC_ALL=C sed -i 's/libcrypto\.so\.3/libcrypt9.so.3/' "$1""#
        try Command(["sh", "-c", rename, "sh", "\(unpacked)/bin/vaultfs"]).run().succeeded()
        let missing = try refusal("--prefix", prefix)
        #expect(missing.contains(/^install\.sh: missing libraries: libcrypt9\.so\.3: install OpenSSL/), "\(missing)")
        try Data("#!/bin/sh\necho 'no such GLIBC' >&2; exit 127\n".utf8)
            .write(to: URL(fileURLWithPath: "\(unpacked)/bin/vaultfs"))
        #expect(try refusal("--prefix", prefix).contains("does not run on this system: no such GLIBC"))
    }

    @Test("the templates for other distributions have the program's version", arguments: ["vaultfs.spec", "PKGBUILD"])
    func templatesHaveVersion(name: String) throws {
        let version = try Command([Products.binary, "--version"]).run().succeeded().output.split(separator: " ")[1]
        let template = try String(contentsOfFile: "\(Self.root)/packaging/\(name)", encoding: .utf8)
        #expect(template.contains(try Regex("(?m)^(pkgver=|Version: +)\(version)$")))
    }

    @Test("the directory of the source is not in the package")
    func directoryOfSource() throws {
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--raw-extract", package("package"), tree]).run().succeeded()
        let found = try Command(["grep", "-rlaF", Self.root + "/", tree]).run()
        #expect(found.exitCode == 1 && found.output.isEmpty, "\(found)")
    }

    @Test("plocate's daily run leaves mounts out")
    func plocateLeavesMountsOut() throws {
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--extract", package("package"), tree]).run().succeeded()
        let path = "\(tree)/usr/lib/systemd/system/plocate-updatedb.service.d/10-vaultfs.conf"
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        // The empty line removes plocate's own command, because a service of the type oneshot may have several.
        #expect(lines.suffix(2) == ["ExecStart=", "ExecStart=/usr/sbin/updatedb.plocate --add-prunefs fuse.vaultfs"])
    }

    @Test("a list of its parts, with versions and licences, as SPDX 2.3 requires it")
    func listOfItsParts() throws {
        let package = try package("package")
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--extract", package, tree]).run().succeeded()
        func object(_ path: String) throws -> [String: Any] {
            let data = try Data(contentsOf: URL(fileURLWithPath: path))
            return try #require(JSONSerialization.jsonObject(with: data) as? [String: Any])
        }
        let document = try object("\(tree)/usr/share/doc/vaultfs/vaultfs.spdx.json")
        func text(_ name: String) -> String { document[name] as? String ?? "" }
        let creation = try #require(document["creationInfo"] as? [String: Any])
        #expect(text("spdxVersion") == "SPDX-2.3" && text("dataLicense") == "CC0-1.0")
        #expect(text("SPDXID") == "SPDXRef-DOCUMENT" && text("name").hasPrefix("vaultfs_"))
        #expect(text("documentNamespace").contains(/^[a-z]+:[^#]+$/))
        #expect(creation["created"] as? String == "1970-01-02T00:00:00Z")
        let creators = try #require(creation["creators"] as? [String])
        #expect(!creators.isEmpty && creators.allSatisfy { $0.contains(/^(Tool|Organization|Person): ./) })

        let parts = try #require(document["packages"] as? [[String: Any]])
        for part in parts {
            for name in [
                "name", "SPDXID", "versionInfo", "downloadLocation", "licenseConcluded", "licenseDeclared",
                "copyrightText",
            ] { #expect((part[name] as? String)?.isEmpty == false, "\(name): \(part)") }
            #expect((part["SPDXID"] as? String)?.contains(/^SPDXRef-[A-Za-z0-9.-]+$/) == true)
            #expect(part["filesAnalyzed"] as? Bool == false)
            #expect(part["versionInfo"] as? String != "NOASSERTION", "\(part)")
        }
        let identities = parts.compactMap { $0["SPDXID"] as? String }
        #expect(Set(identities).count == parts.count)
        let versions = Dictionary(
            uniqueKeysWithValues: parts.map { ($0["name"] as? String ?? "", $0["versionInfo"] as? String ?? "") })
        #expect(try versions["vaultfs"] == field("Version", of: package))
        // Compare the versions resolved by SwiftPM, of all dependencies in Package.swift.
        let pins = try #require(object("\(Self.root)/Package.resolved")["pins"] as? [[String: Any]])
        for pin in pins {
            let name = try #require(pin["identity"] as? String)
            #expect(versions[name] == (pin["state"] as? [String: Any])?["version"] as? String, "\(name)")
        }
        let manifest = try String(contentsOfFile: "\(Self.root)/Package.swift", encoding: .utf8)
        let names = manifest.matches(of: /url: ".*\/([^\/"]+)"/).map { String($0.1) }
        #expect(names.count == 3 && names.allSatisfy { versions[$0] != nil })
        for name in ["swift", "swift-foundation", "libfuse3-3", "libssl3", "libc6"] {
            #expect(versions[name]?.contains(/^\d+\.\d/) == true, "\(name): \(versions)")
        }
        // The document describes vaultfs, and links each other part to it.
        let relations = try #require(document["relationships"] as? [[String: String]])
        let related = relations.compactMap { $0["relatedSpdxElement"] }
        #expect(related.sorted() == identities.sorted())
        #expect(relations.first?["relationshipType"] == "DESCRIBES" && related.first == "SPDXRef-vaultfs")
        #expect(
            relations.dropFirst().allSatisfy {
                $0["spdxElementId"] == "SPDXRef-vaultfs"
                    && ["STATIC_LINK", "DYNAMIC_LINK"].contains($0["relationshipType"])
            })
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
        #expect(suggested.contains(", gir1.2-secret-1"), "\(suggested)")

        let listing = try Command(["dpkg-deb", "--contents", package]).run().succeeded().output
        for line in listing.split(separator: "\n") {
            #expect(line.contains(" root/root ") && !line.dropFirst(5).prefix(5).contains("w"), "\(line)")
        }
        let tree = directory.appending("tree")
        try Command(["dpkg-deb", "--extract", package, tree]).run().succeeded()
        // These are the checks of a user after the installation.
        let checks = """
            set -e
            cd \(tree)/usr
            bin/vaultfs --version
            for provider in vaultfs-tpm2 vaultfs-fido2 vaultfs-keyring; do
                bin/$provider --help | grep "^usage: $provider enroll " >/dev/null
                ! bin/$provider --help 2>&1 >/dev/null | grep .
                gzip -t share/man/man1/$provider.1.gz
            done
            test -x bin/vaultfs-agent
            test -x bin/vaultfs-reader
            test -x bin/vaultfs-tray
            for module in commands dialogs forms session vaults; do test -s share/vaultfs/vaultfs_tray/$module.py; done
            gzip -t share/man/man1/vaultfs-tray.1.gz
            grep -q '^Exec=vaultfs-tray --window$' share/applications/vaultfs-tray.desktop
            test -s share/icons/hicolor/scalable/apps/vaultfs.svg
            python3 -m json.tool share/SiriKali/backends/vaultfs.json >/dev/null
            grep -q '^ExecStart=/usr/bin/vaultfs-agent$' lib/systemd/user/vaultfs-agent.service
            gzip -t share/man/man1/vaultfs.1.gz share/man/man1/vaultfs-mount.1.gz share/man/man1/vaultfs-agent.1.gz share/man/man1/vaultfs-reader.1.gz share/man/man7/vaultfs-backup.7.gz share/man/man7/vaultfs-sync.7.gz share/man/man7/vaultfs-locking.7.gz share/doc/vaultfs/changelog.gz
            bash -n share/bash-completion/completions/vaultfs
            grep -q '^#compdef vaultfs' share/zsh/vendor-completions/_vaultfs
            grep -q -- "-l 'guard-mountpoint'" share/fish/vendor_completions.d/vaultfs.fish
            test -s share/doc/vaultfs/copyright
            (
                cd share/doc/vaultfs
                gzip -d <README.md.gz >README.md
                for page in README.md Manual/*.md; do
                    for link in $(grep -oE '\\]\\([^)]+\\)' $page | tr -d '])(' | sed 's/#.*//' | grep -v ^https:); do
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
