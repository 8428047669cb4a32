import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Contents of playlists on the mount.
    @Suite struct HlsPlaylists {
        @Test("METHOD=NONE in between, vectors of segments' numbers, CRLF, a byte order mark, unknown tags")
        func dialect() throws {
            let hls = try HlsView()
            for number: UInt8 in [1, 2] { try hls.write("k\(number).bin", HlsView.key(number)) }
            try hls.segment("1.ts", key: 1, vector: 7794)
            try hls.write("2.ts", HlsView.content("2.ts"))
            try hls.segment("3.ts", key: 2, vector: 7796)
            try hls.segment("4.ts", key: 1, vector: 0xABC)
            func key(_ line: String) -> (String, Bool) { (line, false) }
            let lines: [(text: String, isKept: Bool)] = [
                ("\u{FEFF}#EXTM3U", true), ("#EXT-X-VERSION:3", true), ("#EXT-X-MEDIA-SEQUENCE:7794", true),
                key(HlsView.keyLine("k1.bin")), ("#EXTINF:1.5,Straße", true), ("1.ts", true),
                ("#EXT-X-FUTURE:URI=\"1.ts\",METHOD=AES-128", true), key("#EXT-X-KEY:METHOD=NONE"),
                ("#EXTINF:1,", true),
                ("# a comment", true), ("2.ts", true), key(HlsView.keyLine("k2.bin")), ("#EXT-X-DISCONTINUITY", true),
                ("#EXTINF:1,", true), ("3.ts", true), key(HlsView.keyLine("k1.bin", vector: 0xABC)),
                ("#EXTINF:1,", true), ("4.ts", true), ("#EXT-X-ENDLIST", true),
            ]
            try hls.write("out.m3u8", lines.map { $0.text + "\r\n" }.joined())
            try hls.view.mount("hls")
            let shown = lines.filter(\.isKept).map { $0.text + "\r\n" }.joined()
            #expect(try hls.size("out.m3u8") == shown.utf8.count)
            #expect(try hls.read("out.m3u8").output == shown)
            try hls.expectSegments("1.ts", "2.ts", "3.ts", "4.ts")
            #expect(try hls.view.problems().isEmpty)
        }

        @Test("several playlists in one tree: different keys under one name, and segments that they share")
        func severalPlaylists() throws {
            let hls = try HlsView()
            for (number, directory) in [(UInt8(1), "a"), (2, "b")] {
                try hls.write("\(directory)/k.bin", HlsView.key(number))
                for segment in [0, 1] {
                    try hls.segment("\(directory)/\(segment).ts", key: number, vector: UInt64(segment))
                }
                try hls.playlist("\(directory)/out.m3u8", [HlsView.keyLine("k.bin")] + HlsView.lines("0.ts", "1.ts"))
            }
            let lines = HlsView.lines("a/0.ts", "a/1.ts")
            try hls.playlist(
                "both.m3u8",
                [HlsView.keyLine("a/k.bin")] + lines + [HlsView.keyLine("b/k.bin", vector: 1)]
                    + HlsView.lines("b/1.ts"))
            try hls.view.mount("hls")
            try hls.expectSegments("a/0.ts", "a/1.ts", "b/0.ts", "b/1.ts")
            let expected = (["#EXTM3U"] + lines + HlsView.lines("b/1.ts")).map { $0 + "\n" }.joined()
            #expect(try hls.read("both.m3u8").output == expected)
            #expect(try hls.view.problems().isEmpty)
        }

        @Test("a playlist opened through a link, and by the name that the link leads to")
        func link() throws {
            let hls = try HlsView()
            try hls.write("k.bin", HlsView.key(1))
            try hls.segment("1.ts", key: 1, vector: 0)
            try hls.playlist("lists/l.txt", [HlsView.keyLine("k.bin")] + HlsView.lines("1.ts"))
            try Command(["ln", "-s", "lists/l.txt", hls.path("l.m3u8")]).run().succeeded()
            try hls.view.mount("hls")
            let shown = "#EXTM3U\n#EXTINF:1,\n1.ts\n"
            for name in ["lists/l.txt", "l.m3u8"] {
                #expect(try hls.read(name).output == shown)
                #expect(
                    try Int(hls.view.account.run(["stat", "-Lc", "%s", hls.mounted(name)]).output.dropLast()) == 24)
            }
            try hls.expectSegments("1.ts")
        }

        @Test(
            "keys from every source: --key, --key-command, relative paths, names beside the playlist, a final newline"
        )
        func keys() throws {
            let hls = try HlsView()
            let mapped = "https://host.example/key?id=1&token=a=b"
            let uris = [mapped, "https://host.example/two", "keys/three.bin", "https://host.example/x/four.bin?token"]
            for (number, uri) in zip(UInt8(1)..., uris) {
                try hls.segment("\(number).ts", key: number, vector: 0)
                try hls.playlist("\(number).m3u8", [HlsView.keyLine(uri)] + HlsView.lines("\(number).ts"))
            }
            try HlsView.key(1).write(to: URL(fileURLWithPath: "\(hls.view.keys)/one"))
            try HlsView.key(2).write(to: URL(fileURLWithPath: "\(hls.view.keys)/two"))
            try hls.write("keys/three.bin", HlsView.key(3) + [0x0A])
            try hls.write("three.bin", HlsView.key(9))
            try hls.write("four.bin", HlsView.key(4))
            let given = ["--key", "\(mapped)=\(hls.view.keys)/one"]
            try hls.view.mountInForeground("hls", given)
            try hls.expectSegments("1.ts", "3.ts", "4.ts")
            try hls.expectFailure(
                "2.ts", "Required key not available",
                problem: "2.ts: no key for https://host.example/two: there is no key file two, and neither --key")
            try hls.view.unmount()
            // The command runs for every key not given by --key.
            let command = "test \"$VAULTFS_KEY_URI\" = https://host.example/two && cat '\(hls.view.keys)/two'"
            try hls.view.mountInForeground("hls", given + ["--key-command", command])
            try hls.expectSegments("1.ts", "2.ts")
            try hls.expectFailure(
                "4.ts", "Required key not available",
                problem: "no key for https://host.example/x/four.bin?…: the key command failed with exit code 1")
            #expect(!hls.view.log.contains("token"))
        }
    }
}
