import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import vaultfs

/// `vaultfs info --view`, through the binary.
@Suite(.timeLimit(.minutes(20))) struct InfoViewTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func info(_ name: String) throws -> [String: Any] {
        let result = try Command([Products.binary, "info", "--view", directory.appending(name), "--json"]).run()
            .succeeded()
        return try #require(JSONSerialization.jsonObject(with: Data(result.output.utf8)) as? [String: Any])
    }

    private func make(_ name: String, _ script: String) throws {
        try Command(["sh", "-c", "(\(script)) > \(directory.appending(name))"]).run().succeeded()
    }

    @Test("a file of openssl enc")
    func fileOfOpensslEnc() throws {
        try make("salted", "echo text | openssl enc -aes-256-cbc -pbkdf2 -pass pass:x")
        let found = try info("salted")
        #expect(found["content"] as? String == "openssl")
        #expect(found["isSalted"] as? Bool == true)
        let first = try #require((found["commands"] as? [String])?.first)
        #expect(
            first == "vaultfs view openssl \(directory.appending("salted")) MOUNTPOINT --pbkdf2")
        let text = try Command([Products.binary, "info", "--view", directory.appending("salted")]).run().succeeded()
            .output
        for label in ["if made with -pbkdf2", "if made with -iter N", "if made without both"] {
            #expect(text.contains("\n\(label)  "), "\(text)")
        }
    }

    @Test("ciphertext in chunks or in one")
    func ciphertextChunksOne() throws {
        try make("chunks", "head -c \(10 * ((1 << 20) + 16)) /dev/urandom")
        let found = try info("chunks")
        #expect(found["content"] as? String == "ciphertext")
        #expect(found["mayBeStream"] as? Bool == true)
        let commands = try #require(found["commands"] as? [String])
        #expect(commands.first?.hasSuffix("--chunk-size SIZE --key-file KEY") == true)
        #expect(commands.last?.hasSuffix("--iv-in-file") == true)
    }

    @Test(
        "other files",
        arguments: [
            ("", "empty"), ("echo text | openssl enc -a -aes-256-cbc -pbkdf2 -pass pass:x", "openssl-base64"),
            ("head -c 4097 /dev/urandom", "other"), ("head -c 65536 /dev/zero", "other"),
            ("head -c 4096 /dev/urandom", "ciphertext"), ("printf '\\000\\000\\000\\030ftypmp42'", "unsupported"),
            ("printf '\\000\\000\\000\\010ftyp\\000\\000\\000\\010moov'", "plaintext"),
            ("for i in 1 2 3 4; do printf G; head -c 187 /dev/zero; done", "plaintext"),
        ]
    )
    func otherFiles(script: String, content: String) throws {
        try make("file", script.isEmpty ? ":" : script)
        let found = try info("file")
        #expect(found["content"] as? String == content, "\(found)")
        #expect((found["commands"] as? [String])?.isEmpty == (content != "ciphertext"))
    }

    @Test("playlists")
    func playlistsOfADirectory() throws {
        try directory.write(
            "media.m3u8",
            "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k.bin\"\n#EXTINF:4,\na.ts\n#EXT-X-KEY:METHOD=NONE\n#EXTINF:4,\nb.ts\n"
        )
        try directory.write("master.m3u8", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nmedia.m3u8\n")
        let media = try #require(try info("media.m3u8")["playlist"] as? [String: Any])
        #expect(media["kind"] as? String == "media")
        #expect(media["segments"] as? Int == 2 && media["encryptedSegments"] as? Int == 1)
        #expect(media["keys"] as? [String] == ["k.bin"])
        try directory.write(
            "data.m3u8", "#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"data:;base64,c2VjcmV0\"\n#EXTINF:4,\na.ts\n")
        let data = try #require(try info("data.m3u8")["playlist"] as? [String: Any])
        #expect(data["keys"] as? [String] == ["data:…"])
        let master = try #require(try info("master.m3u8")["playlist"] as? [String: Any])
        #expect(master["kind"] as? String == "master" && master["segments"] as? Int == 0)
        #expect(try info("media.m3u8")["commands"] as? [String] == ["vaultfs view hls \(directory.path) MOUNTPOINT"])
    }

    @Test("a path that is no file is refused, and text says the same")
    func pathThatIsNoFile() throws {
        let refused = try Command([Products.binary, "info", "--view", directory.path]).run()
        #expect(refused.exitCode == 1)
        #expect(refused.errors == "vaultfs: cannot open \(directory.path): it is a directory\n")
        try make("file", "head -c 70000 /dev/urandom")
        let text = try Command([Products.binary, "info", "--view", directory.appending("file")]).run().succeeded()
            .output
        #expect(text.contains("70000 bytes, a multiple of 16"))
    }
}

@Suite struct ExportTextTests {
    @Test(
        "paths as a shell reads them",
        arguments: [
            ("/a/b.ts", "/a/b.ts"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("-x", "./-x"), ("größe", "'größe'"),
        ]
    )
    func pathsAsShellReadsThem(path: String, quoted: String) {
        #expect(FilePath(path).quotedForShell == quoted)
    }

    @Test("times", arguments: [(0, "0:00"), (9, "0:09"), (125, "2:05"), (3600, "1:00:00"), (7265, "2:01:05")])
    func timesOfPlaylists(seconds: Int, text: String) {
        #expect(AmountText.time(seconds: seconds) == text)
    }
}
