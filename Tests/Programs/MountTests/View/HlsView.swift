import Foundation
import TestSupport
import Testing

/// Playlists and segments written by hand, encrypted by openssl, and their view.
final class HlsView {
    let view: ViewUnderTest

    init() throws { view = try ViewUnderTest() }

    /// The 16 bytes of a key.
    static func key(_ number: UInt8) -> Data { Data(repeating: number, count: 15) + [0xA5] }

    /// Returns the content of a segment before encryption.
    static func content(_ name: String) -> String {
        String(repeating: "this is \(name), ", count: 400)
    }

    func path(_ name: String) -> String { "\(view.source)/\(name)" }

    /// Writes a file of the source. An existing file is replaced in one step.
    func write(_ name: String, _ data: Data) throws {
        let file = URL(fileURLWithPath: path(name))
        try FileManager.default.createDirectory(
            at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
        try data.write(to: file, options: .atomic)
    }

    func write(_ name: String, _ text: String) throws { try write(name, Data(text.utf8)) }

    /// Writes a playlist of these lines.
    func playlist(_ name: String, _ lines: [String]) throws {
        try write(name, (["#EXTM3U"] + lines).map { $0 + "\n" }.joined())
    }

    /// Returns the lines for these segments.
    static func lines(_ uris: String...) -> [String] { uris.flatMap { ["#EXTINF:1,", $0] } }

    static func keyLine(_ uri: String, vector: UInt64? = nil) -> String {
        "#EXT-X-KEY:METHOD=AES-128,URI=\"\(uri)\"" + (vector.map { String(format: ",IV=0x%032lx", $0) } ?? "")
    }

    /// Writes an encrypted segment.
    /// - Parameter content: the segment's content, if not its own name.
    func segment(_ name: String, key: UInt8, vector: UInt64, content: String? = nil) throws {
        let digits = Self.key(key).map { String(format: "%02x", $0) }.joined()
        try write(name, "")
        try Command(
            [
                "openssl", "enc", "-aes-128-cbc", "-K", digits, "-iv", String(format: "%032lx", vector), "-out",
                path(name),
            ], input: Self.content(content ?? name)
        ).run().succeeded()
    }

    /// Returns the path of `name` in the mount. `read` reads the whole file.
    func mounted(_ name: String) -> String { "\(view.mountpoint)/\(name)" }
    func read(_ name: String) throws -> CommandResult { try view.account.run(["cat", mounted(name)]) }

    func size(_ name: String) throws -> Int {
        let result = try view.account.run(["stat", "-c", "%s", mounted(name)]).succeeded()
        return Int(result.output.dropLast()) ?? -1
    }

    func expectSegments(_ names: String..., sourceLocation: SourceLocation = #_sourceLocation) throws {
        for name in names {
            let result = try read(name)
            #expect(
                result.output == Self.content(name) && result.exitCode == 0, "\(name): \(result.errors)",
                sourceLocation: sourceLocation)
        }
    }

    /// Expects reading to fail with this error, and `status` and (for a mount in the foreground) the log to give the
    /// reason.
    func expectFailure(
        _ name: String, _ error: String, problem: String, sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let result = try read(name)
        #expect(result.errors.hasSuffix(": \(error)\n"), "\(name): \(result)", sourceLocation: sourceLocation)
        let problems = try view.problems()
        #expect(
            problems.contains { $0.contains(problem) }, "\(problem): \(problems)", sourceLocation: sourceLocation)
        #expect(view.log.contains(problem), "\(problem): \(view.log)", sourceLocation: sourceLocation)
    }
}
