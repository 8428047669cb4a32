import Foundation
import TestSupport
import Testing

/// The README and its pictures, and the programs that draw them. (`ManualTests` follows the README's links.)
@Suite(.timeLimit(.minutes(20))) struct FrontPageTests {
    private static let root = "\(Products.tests)/.."

    private func text(_ path: String) throws -> String {
        try String(contentsOfFile: "\(Self.root)/\(path)", encoding: .utf8)
    }

    /// Runs a piece of Python that may import the modules of `scripts`.
    private func python(_ program: String, _ arguments: String...) throws -> CommandResult {
        try Command(
            [Products.python, "-B", "-c", program] + arguments, environment: ["PYTHONPATH": "\(Self.root)/scripts"]
        ).run()
    }

    @Test func `the README is short, and says first what locks`() throws {
        let readme = try text("README.md")
        #expect(readme.split(whereSeparator: \.isWhitespace).count <= 900)
        let first = try #require(readme.split(separator: "\n\n").dropFirst().first)
        #expect(first.prefix(100).contains("**locks"))
    }

    @Test("the README's example is from the session that a test compares word for word")
    func example() throws {
        var session = try text("Tests/Transcripts/first-hour.txt").split(separator: "\n")[...]
        let example = try #require(text("README.md").split(separator: "```\n").first { $0.hasPrefix("$ ") })
        for line in example.split(separator: "\n") where line != "…" {
            let found = try #require(session.firstIndex(of: line), "\(line)")
            session = session[(found + 1)...]
        }
    }

    @Test(arguments: [("docs/demo.svg", 300), ("docs/benchmark.svg", 50)])
    func `a picture needs no script and nothing else, and suits a dark page`(path: String, kibibytes: Int) throws {
        let picture = try text(path)
        #expect(picture.utf8.count <= kibibytes * 1024)
        #expect(picture.contains("@media (prefers-color-scheme: dark)"))
        for word in ["<script", "href", "url(", "@import", "/tmp", "/root", "/var/"] {
            #expect(!picture.contains(word), "\(word)")
        }
        try python("import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])", "\(Self.root)/\(path)").succeeded()
    }

    @Test func `the demo stands still for people who asked for that`() throws {
        let demo = try text("docs/demo.svg")
        #expect(demo.contains("@media (prefers-reduced-motion: reduce)"))
        for word in ["vaultfs init", "vaultfs mount", "vaultfs lock", "Required key not available", "vaultfs unlock"] {
            #expect(demo.contains(word), "\(word)")
        }
    }

    /// Results of a run, as `scripts/bench` writes them: two tests, one of them not measured for securefs.
    private static let results = """
        {"machine": {"cores": 2, "kernel": "6.18.5", "filesystem": "tmpfs", "date": "2026-11-23"},
         "versions": {"gocryptfs": "2.3", "vaultfs": "0.1.0"}, "settings": {"rounds": 3},
         "tests": {"seqwrite": {"name": "sequential <write>", "unit": "MiB/s"}, "untar": {"name": "untar", "unit": "files/s"}},
         "medians": {"plain": {"seqwrite": 9000, "untar": 20000}, "null": {"seqwrite": 1137, "untar": 10090},
                     "gocryptfs": {"seqwrite": 300, "untar": 1853}, "securefs": {"seqwrite": null, "untar": 2690},
                     "vaultfs": {"seqwrite": 600, "untar": 3815.4}}}
        """

    /// A project with two pages, of which one has figures of an earlier run.
    private func project() throws -> TemporaryDirectory {
        let directory = try TemporaryDirectory()
        for name in ["docs", "Manual"] {
            try FileManager.default.createDirectory(
                atPath: directory.appending(name), withIntermediateDirectories: false)
        }
        try directory.write("README.md", "# A page\n")
        try directory.write(
            "Manual/Performance.md",
            """
            | | FUSE | bindfs | gocryptfs 2.2 | securefs 0.13 | encfs 1.9 | vaultfs |
            |---|--:|--:|--:|--:|--:|--:|
            | sequential write, MiB/s | 1 | 2 | 3 | 4 | 5 | 6 |
            | untar, files/s | 1 | 2 | 3 | 4 | 5 | **6** |
            | `rm -rf`, files/s | 1 | 2 | 3 | 4 | 5 | **6** |

            """)
        try directory.write("results.json", Self.results)
        return directory
    }

    private func plot(_ project: TemporaryDirectory, _ results: String) throws -> CommandResult {
        let script = "\(Self.root)/scripts/bench_plot.py"
        return try Command([Products.python, "-B", script, project.appending(results), project.path]).run()
    }

    @Test func `a chart is drawn from the results of a run`() throws {
        let project = try project()
        try plot(project, "results.json").succeeded()
        let picture = project.appending("docs/benchmark.svg")
        let bars = """
            import sys, xml.dom.minidom as dom
            for group in dom.parse(sys.argv[1]).getElementsByTagName("g"):
                words = [text.firstChild.data for text in group.getElementsByTagName("text")]
                print(group.getAttribute("class"), *words, group.getElementsByTagName("rect")[0].getAttribute("width"))
            """
        let drawn = try python(bars, picture).succeeded().output.split(separator: "\n").map { $0.split(separator: " ") }
        #expect(drawn.map { $0[0] } == ["gocryptfs", "securefs", "vaultfs", "gocryptfs", "securefs", "vaultfs"])
        #expect(drawn.map { $0[2] } == ["300", "–", "600", "1,853", "2,690", "3,815"])
        let widths = drawn.compactMap { Double($0[3]) }
        #expect(widths[1] == 0 && widths[2] == widths[5] && abs(widths[2] - 2 * widths[0]) < 0.2)
        let text = try String(contentsOfFile: picture, encoding: .utf8)
        #expect(text.contains("sequential &lt;write&gt;, MiB/s") && text.contains("3 interleaved rounds"))
        #expect(text.contains(".vaultfs text { font-weight: 700 }"))
    }

    @Test func `its figures go into the tables, and a test that was not run keeps its own`() throws {
        let project = try project()
        try plot(project, "results.json").succeeded()
        let page = try String(contentsOfFile: project.appending("Manual/Performance.md"), encoding: .utf8)
        #expect(
            page == """
                | | FUSE | bindfs | gocryptfs 2.3 | securefs | encfs | vaultfs |
                |---|--:|--:|--:|--:|--:|--:|
                | sequential write, MiB/s | 1,137 | – | 300 | – | – | **600** |
                | untar, files/s | 10,090 | – | 1,853 | 2,690 | – | **3,815** |
                | `rm -rf`, files/s | 1 | 2 | 3 | 4 | 5 | **6** |

                """)
        #expect(try String(contentsOfFile: project.appending("README.md"), encoding: .utf8) == "# A page\n")
    }

    @Test(arguments: [("README.md", 6), ("Manual/Performance.md", 11)])
    func `the tables have the figures of the chart`(page: String, count: Int) throws {
        let chart = try text("docs/benchmark.svg")
        let table = try text(page).split(separator: "| | FUSE |")[1]
        let rows = table.split(separator: "\n").dropFirst(2).prefix { $0.hasPrefix("| ") }
        #expect(rows.count == count)
        for row in rows {
            // After the row's words and the server that stores nothing, which the chart leaves out.
            for cell in row.split(separator: " | ").dropFirst(2) {
                let figure = cell.filter { $0.isNumber || $0 == "," }
                #expect(chart.contains(">\(figure)</text>"), "\(row)")
            }
        }
    }

    @Test func `a file without results is refused in one line, and nothing is written`() throws {
        let project = try project()
        try project.write("other.json", "{\"medians\": []}")
        for name in ["other.json", "absent.json"] {
            let result = try plot(project, name)
            #expect(result.exitCode == 1 && result.errors.hasPrefix("bench: "), "\(result)")
            #expect(result.errors.split(separator: "\n").count == 1, "\(result)")
        }
        #expect(!FileManager.default.fileExists(atPath: project.appending("docs/benchmark.svg")))
    }

    @Test func `a terminal's rows are drawn once for as long as they stay`() throws {
        let program = """
            import terminal_svg
            a, b, c = ((0, "a", ""),), ((0, "b<", ""),), ((0, "c", "caption"), (3, "d", ""))
            frames = [(0, [a, ()]), (1, [a, b]), (2, [a, c]), (2, [b, c]), (4, [b, c])]
            for entry in terminal_svg.intervals(frames, 10): print(*entry)
            drawn = terminal_svg.svg(frames, "story")
            assert drawn.count("@keyframes") == drawn.count("step-end") == 4, drawn
            assert drawn.count(' visibility="hidden"') == 2, drawn
            assert "b&lt;" in drawn and '<text x="41.2"' in drawn and 'class="caption"' in drawn, drawn
            """
        #expect(
            try python(program).succeeded().output == """
                0 ((0, 'a', ''),) 0 2
                1 ((0, 'b<', ''),) 1 2
                0 ((0, 'b<', ''),) 2 10
                1 ((0, 'c', 'caption'), (3, 'd', '')) 2 10

                """)
    }
}
