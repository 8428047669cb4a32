import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// The manual pages, as `scripts/package` makes them. `--help` and the sources define what they must contain.
@Suite(.timeLimit(.minutes(20))) struct ManualTests {
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

    /// The pages of section 7, and the chapter of each.
    private static let tasks = [
        "vaultfs-first-hour": "FirstHour", "vaultfs-backup": "Sync", "vaultfs-sync": "Sync",
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

    /// The text of a page, without escape sequences.
    private func page(_ name: String, section: Int = 1) throws -> String {
        try String(contentsOfFile: directory.appending("\(name).\(section)"), encoding: .ascii)
            .replacingOccurrences(of: "\\-", with: "-").replacingOccurrences(of: "\\(aq", with: "'")
            .replacingOccurrences(of: "\\fB", with: "").replacingOccurrences(of: "\\fR", with: "")
    }

    /// The options at the start of lines of a help text: `-f, --foreground`.
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
            // Slips in the sources of the help.
            #expect(!text.contains("> <") && !text.contains(/[^ .]  +[^ ]/), "\(name)")
        }
    }

    @Test("exit codes, and fstab's words, are those of the program")
    func exitCodes() throws {
        let text = try page("vaultfs")
        let codes = try #require(text.range(of: "\n.SH \"EXIT STATUS\"\n"))
        for code in FailureCode.allCases {
            #expect(text[codes.upperBound...].contains("\n\(code.rawValue)\n\(code.explanation)\n"))
        }
        #expect(text[codes.upperBound...].contains("\n128+n\ninterrupted by signal n: 130 for SIGINT"))
        for word in MountOptionList.own.map({ $0 + "=" }) + [
            "no_kernel_cache", "guard_mountpoint", "nonempty", "prewarm", "follow_writer",
        ] {
            #expect(text.contains(word), "\(word)")
        }
    }

    @Test("man renders them without a warning")
    func manRendersThemWithoutWarning() throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        #expect(files.count == Self.commands.count + 1 + Self.tasks.count)
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
            ("vaultfs-reader", "--names RULES"),
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

    @Test("a task's page has its names and every section of its chapter, and vaultfs(1) names it")
    func taskPages() throws {
        for (name, chapter) in Self.tasks {
            let text = try page(name, section: 7)
            #expect(text.contains("\n.SH NAME\n") && text.contains(name))
            let source = try String(contentsOfFile: "\(Products.root)/Manual/\(chapter).md", encoding: .utf8)
            for heading in source.split(separator: "\n").filter({ $0.hasPrefix("## ") }) {
                #expect(text.contains("\n\(heading.dropFirst("## ".count).uppercased())\n"), "\(name): \(heading)")
            }
        }
        let text = try page("vaultfs")
        for name in ["vaultfs-first-hour", "vaultfs-backup"] { #expect(text.contains(".BR \(name) (7)")) }
    }

    @Test("a reference names a section, a page or a file of the package, and only links name them in the chapters")
    func references() throws {
        let pages = try [page("vaultfs")] + Self.tasks.keys.sorted().map { try page($0, section: 7) }
        for text in pages { #expect(!text.contains(/\.md(?!\.gz)/)) }
        #expect(pages[0].contains("(leases: see SLOTS AND SECRETS)"))
        #expect(pages[0].contains("\\fC/usr/share/doc/vaultfs/FileFormat.md.gz"))
        let firstHour = try page("vaultfs-first-hour", section: 7)
        #expect(firstHour.contains("Protection (WHAT IS PROTECTED, AND WHAT IS NOT in \\fCvaultfs(1))"))
        let root = "\(Products.root)/Manual"
        let chapters = try FileManager.default.contentsOfDirectory(atPath: root)
        let texts = try chapters.map { try String(contentsOfFile: "\(root)/\($0)", encoding: .utf8) }
        for title in texts.compactMap({ $0.split(separator: "\n").first?.dropFirst("# ".count).uppercased() }) {
            for text in texts { #expect(!text.contains(title), "\(title)") }
        }
    }

    @Test("every chapter is in the page, and every link of the README and the chapters leads to a file")
    func everyChapterIsInPage() throws {
        let root = "\(Products.root)"
        let chapters = try FileManager.default.contentsOfDirectory(atPath: "\(root)/Manual")
        let text = try page("vaultfs")
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
                }.map { $0.drop { "# ".contains($0) }.lowercased().replacingOccurrences(of: " ", with: "-") }
                #expect(headings.contains(String(parts[1])), "\(path): \(link)")
            }
            // The figures are not part of the manual, and the pages of section 7 have sections of their own.
            let pages = ["Performance"] + Self.tasks.values
            if path.hasPrefix("Manual"), !pages.contains(where: { path == "Manual/\($0).md" }) {
                let title = try #require(source.split(separator: "\n").first).dropFirst("# ".count)
                let plain = title.uppercased().replacingOccurrences(of: "'", with: "\\(cq")
                #expect(text.contains("\n\(plain)\n"), "\(path)")
            }
        }
    }
}
