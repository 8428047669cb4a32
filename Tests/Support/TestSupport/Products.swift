import Foundation

/// Paths of the programs and files under test.
package enum Products {
    /// The vaultfs binary, beside the test bundle. `VAULTFS_BINARY` names another.
    package static let binary: String =
        ProcessInfo.processInfo.environment["VAULTFS_BINARY"] ?? built("vaultfs")

    /// Returns the path of an executable built with the tests.
    package static func built(_ name: String) -> String {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count - 1)
        let bundle = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return URL(fileURLWithPath: bundle).deletingLastPathComponent().appendingPathComponent(name).path
    }

    /// The project's directory.
    package static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().path

    /// `Tests/Support` of the project, with test vectors, transcripts, and the tests' programs.
    package static let support = "\(root)/Tests/Support"

    /// Returns the first code block with this text in a chapter of the manual.
    package static func manualBlock(_ chapter: String, with text: String) throws -> String {
        let page = try String(contentsOfFile: "\(root)/Manual/\(chapter).md", encoding: .utf8)
        guard let block = page.split(separator: "```\n").first(where: { $0.contains(text) }) else {
            throw TestFailure("no '\(text)' in \(chapter).md")
        }
        return String(block)
    }

    /// A Python with the `cryptography` package: Debian's own if it has the package.
    package static let python: String = {
        let debian = "/usr/bin/python3"
        let probe = try? Command([debian, "-c", "import cryptography"]).run()
        return probe?.exitCode == 0 ? debian : "python3"
    }()

    /// The independent reader.
    package static let reader = "\(root)/Reader/vaultfs_reader.py"

    /// Returns the path of a program in `Tests/Support/Programs`.
    package static func program(_ name: String) -> String { "\(support)/Programs/\(name)" }

    /// True if root runs this process.
    package static var isRoot: Bool { geteuid() == 0 }

    /// Counts a mount by one more line in the file named by `VAULTFS_TEST_MOUNT_COUNT`.
    package static func countMount() {
        guard let file = ProcessInfo.processInfo.environment["VAULTFS_TEST_MOUNT_COUNT"] else { return }
        let descriptor = open(file, O_WRONLY | O_APPEND)
        guard descriptor >= 0 else { return }
        _ = write(descriptor, "m\n", 2)
        close(descriptor)
    }
}
