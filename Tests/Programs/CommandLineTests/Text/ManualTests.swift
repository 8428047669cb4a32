import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// The manual pages made by `scripts/package`. `--help` and the sources define their required content.
@Suite(.timeLimit(.minutes(60))) struct ManualTests {
    private static let scripts = "\(Products.root)/scripts/docs"
    /// Every subcommand of `vaultfs`, with the name of its page.
    private static let commands = below(VaultFS.self, page: "vaultfs")

    private static func below(
        _ command: any ParsableCommand.Type, page: String
    ) -> [(command: any ParsableCommand.Type, page: String)] {
        command.configuration.subcommands.flatMap { subcommand in
            let name = "\(page)-\(subcommand.configuration.commandName ?? "")"
            return [(subcommand, name)] + below(subcommand, page: name)
        }
    }

    /// The pages of section 7, with their chapters.
    private static let chapters = [
        "vaultfs-first-hour": "FirstHour", "vaultfs-locking": "Locking", "vaultfs-keys": "Keys",
        "vaultfs-transfer": "Transfer", "vaultfs-views": "Views", "vaultfs-backup": "Sync", "vaultfs-sync": "Sync",
        "vaultfs-recovery": "Recovery", "vaultfs-system": "System", "vaultfs-at-login": "AtLogin",
        "vaultfs-network": "Network", "vaultfs-protection": "Protection", "vaultfs-limits": "Limits",
        "vaultfs-files": "Files", "vaultfs-questions": "Questions",
    ]

    private let directory: TemporaryDirectory

    init() throws {
        directory = try TemporaryDirectory()
        try Command(
            [
                Products.python, "\(Self.scripts)/manual.py", Products.binary,
                "\(Products.root)/Manual", directory.path,
            ], environment: ["SOURCE_DATE_EPOCH": "86400"]
        ).run().succeeded()
    }

    /// Returns a page's text without escape sequences.
    private func page(_ name: String, section: Int = 1) throws -> String {
        try String(contentsOfFile: directory.appending("\(name).\(section)"), encoding: .ascii)
            .replacingOccurrences(of: "\\-", with: "-").replacingOccurrences(of: "\\(aq", with: "'")
            .replacingOccurrences(of: "\\fB", with: "").replacingOccurrences(of: "\\fR", with: "")
    }

    /// Returns the options at the beginning of a help text's lines: `-f, --foreground`.
    private func options(_ help: String) -> [String] {
        help.split(separator: "\n").filter { $0.hasPrefix("  -") }.flatMap { line in
            line.split(separator: " ").prefix { $0.hasPrefix("-") }.map { $0.filter { $0 != "," } }
        }
    }

    @Test("every command has a page, which has every option of its help")
    func everyCommandHasPage() throws {
        for (command, name) in Self.commands {
            let text = try page(name)
            let above = try page(name.split(separator: "-").dropLast().joined(separator: "-"))
            let options = options(VaultFS.helpMessage(for: command))
            #expect(options.contains("--help"))
            for option in options { #expect(text.contains("\n\(option)") || text.contains(", \(option)"), "\(name)") }
            #expect(above.contains("\(name)(1)\n"))
            #expect(!text.contains("--daemon-channel"))
            // Find slips in the sources of the help.
            #expect(!text.contains("> <") && !text.contains(/[^ .]  +[^ ]/), "\(name)")
        }
    }

    @Test("exit codes, and fstab's words, are those of the program, and vaultfs(1) is the commands only")
    func exitCodes() throws {
        let text = try page("vaultfs")
        #expect(text.split(separator: "\n").count < 250)
        let codes = try #require(text.range(of: "\n.SH \"EXIT STATUS\"\n"))
        for code in FailureCode.allCases {
            #expect(text[codes.upperBound...].contains("\n\(code.rawValue)\n\(code.explanation)\n"))
        }
        #expect(text[codes.upperBound...].contains("\n128+n\ninterrupted by signal n: 130 for SIGINT"))
        for word in MountOptionList.own.map({ $0 + "=" }) + [
            "no_kernel_cache", "guard_mountpoint", "nonempty", "prewarm", "follow_writer",
        ] {
            #expect(try page("vaultfs-system", section: 7).contains(word), "\(word)")
        }
    }

    @Test("man renders them without a warning")
    func manRendersThemWithoutWarning() throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(files.count == Self.commands.count + 1 + Self.chapters.count)
        for file in files {
            let result = try Command(
                ["man", "--warnings=w", "-l", directory.appending(file)],
                environment: ["LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PATH": "/usr/bin:/bin"]
            ).run().succeeded()
            #expect(result.errors.isEmpty, "\(result.errors)")
            #expect(result.output.contains("1970-01-02"))
        }
    }

    @Test(
        "so it does the pages that are written by hand",
        arguments: [
            ("vaultfs-tpm2", "--pcrs LIST"), ("vaultfs-fido2", "--no-pin"), ("vaultfs-agent", "InhibitDelayMaxSec"),
            ("vaultfs-keyring", "--desktop-keyring"), ("vaultfs-reader", "--names RULES"),
            ("vaultfs-tray", "gir1.2-ayatanaappindicator3-0.1"),
        ])
    func soItDoesPages(name: String, text: String) throws {
        let page = "\(Products.root)/packaging/\(name).1"
        let result = try Command(
            ["man", "--warnings=w", "-l", page], environment: ["LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"]
        ).run().succeeded()
        #expect(result.errors.isEmpty, "\(result.errors)")
        #expect(result.output.contains(text))
    }

    @Test("a chapter's page has its names and every section of the chapter, and vaultfs(1) names it")
    func chapterPages() throws {
        let first = try page("vaultfs")
        for (name, chapter) in Self.chapters {
            let text = try page(name, section: 7)
            #expect(text.contains("\n.SH NAME\n") && text.contains(name))
            let source = try String(contentsOfFile: "\(Products.root)/Manual/\(chapter).md", encoding: .utf8)
            for heading in source.split(separator: "\n").filter({ $0.hasPrefix("## ") }) {
                let title = heading.dropFirst("## ".count).uppercased().replacing("'", with: "\\(cq")
                #expect(text.contains("\n\(title)\n"), "\(name): \(heading)")
            }
            // A page with two names is found under the first.
            #expect(first.contains("\n\(name)(7)\n") || name == "vaultfs-sync", "\(name)")
        }
        #expect(try page("vaultfs-slot-add").contains("vaultfs-keys(7)"))
    }

    @Test("a reference names a page or a file of the package, and only links name pages in the chapters")
    func references() throws {
        let pages = try Self.chapters.keys.sorted().map { try page($0, section: 7) }
        for text in pages {
            #expect(!text.replacing("Manual/Performance.md", with: "").contains(/\.md(?!\.gz)/))
        }
        let locking = try page("vaultfs-locking", section: 7)
        #expect(locking.contains("(leases: see \\fCvaultfs-keys(7)"))
        #expect(try page("vaultfs-protection", section: 7).contains("\\fC/usr/share/doc/vaultfs/FileFormat.md.gz"))
        #expect(try page("vaultfs-first-hour", section: 7).contains("Protection (\\fCvaultfs-protection(7))"))
        let root = "\(Products.root)/Manual"
        let chapters = try FileManager.default.contentsOfDirectory(atPath: root).filter { $0.hasSuffix(".md") }
        let texts = try chapters.map { try String(contentsOfFile: "\(root)/\($0)", encoding: .utf8) }
        for title in texts.compactMap({ $0.split(separator: "\n").first?.dropFirst("# ".count).uppercased() }) {
            for text in texts { #expect(!text.contains(title), "\(title)") }
        }
    }

    @Test("every chapter has a page, and every link of the README and the chapters leads to a file")
    func everyChapterHasPage() throws {
        let root = "\(Products.root)"
        let chapters = try FileManager.default.contentsOfDirectory(atPath: "\(root)/Manual").filter {
            $0.hasSuffix(".md")
        }
        // The figures are not part of the manual.
        #expect(Set(chapters) == Set(Self.chapters.values.map { "\($0).md" } + ["Performance.md"]))
        for path in ["README.md"] + chapters.map({ "Manual/\($0)" }) {
            let source = try String(contentsOfFile: "\(root)/\(path)", encoding: .utf8)
            for link in source.matches(of: /\]\(([^)]+)\)/).map(\.1) where !link.hasPrefix("https:") {
                let directory = path == "README.md" ? root : "\(root)/Manual"
                let parts = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
                let file = parts[0].isEmpty ? "\(root)/\(path)" : "\(directory)/\(parts[0])"
                #expect(FileManager.default.fileExists(atPath: file), "\(path): \(link)")
                guard parts.count == 2 else { continue }
                let headings = try String(contentsOfFile: file, encoding: .utf8).split(separator: "\n").filter {
                    $0.hasPrefix("#")
                }.map { heading in
                    // As GitHub makes an anchor of a heading.
                    let kept = heading.drop { "# ".contains($0) }.filter {
                        $0.isLetter || $0.isNumber || " -_".contains($0)
                    }
                    return kept.lowercased().replacingOccurrences(of: " ", with: "-")
                }
                #expect(headings.contains(String(parts[1])), "\(path): \(link)")
            }
        }
    }
}
