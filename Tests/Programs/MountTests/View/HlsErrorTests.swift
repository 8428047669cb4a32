import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Faulty parts of a download. Each must give a clear error, and the rest must work.
    @Suite struct HlsErrors {
        /// Makes a tree with a working part. The test adds the faulty parts, then mounts it.
        private func tree() throws -> HlsView {
            let hls = try HlsView()
            try hls.write("k.bin", HlsView.key(1))
            try hls.segment("good.ts", key: 1, vector: 0)
            try hls.playlist("good.m3u8", [HlsView.keyLine("k.bin")] + HlsView.lines("good.ts"))
            return hls
        }

        @Test("a source without a playlist gets a warning, and a vault is refused")
        func nothingToShow() throws {
            let hls = try HlsView()
            try hls.write("good.ts", "no segment")
            let mounted = try hls.view.tryMount("hls").succeeded()
            let warning = "vaultfs: warning: .: no playlist (.m3u8, .m3u) is in the source: nothing is decrypted\n"
            #expect(mounted.errors.hasSuffix(warning), "\(mounted)")
            try hls.view.unmount()
            try hls.write("vaultfs.json", "{}")
            let refused = try hls.view.tryMount("hls")
            #expect(
                refused.errors
                    == "vaultfs: \(hls.view.source) is a vault: vaultfs mount \(hls.view.source) MOUNTPOINT\n")
        }

        @Test("keys: an unsupported method, no key, a key that is too short, the wrong key")
        func keys() throws {
            let hls = try tree()
            try hls.write("short.bin", HlsView.key(1).dropLast())
            try hls.write("wrong.bin", HlsView.key(7))
            for name in ["sample", "none", "short", "wrong"] { try hls.segment("\(name).ts", key: 1, vector: 0) }
            for name in ["none", "short", "wrong"] {
                try hls.playlist("\(name).m3u8", [HlsView.keyLine("\(name).bin")] + HlsView.lines("\(name).ts"))
            }
            let sample = "#EXT-X-KEY:METHOD=AES-192,URI=\"k.bin\""
            try hls.playlist("sample.m3u8", [sample] + HlsView.lines("sample.ts"))
            try hls.view.mountInForeground("hls")
            let unsupported =
                "sample.m3u8:2: METHOD=AES-192 is not supported, only NONE, AES-128, AES-256 and SAMPLE-AES are"
            try hls.expectFailure("sample.ts", "Input/output error", problem: unsupported)
            #expect(try hls.read("sample.m3u8").output == "#EXTM3U\n\(sample)\n#EXTINF:1,\nsample.ts\n")
            try hls.expectFailure(
                "none.ts", "Required key not available",
                problem: "none.ts: no key for none.bin: there is no key file none.bin, and neither --key nor")
            try hls.expectFailure(
                "short.ts", "Required key not available",
                problem:
                    "short.ts: no key for short.bin: key file short.bin has 15 bytes, which is not a key of 16 bytes")
            try hls.expectFailure("wrong.ts", "Input/output error", problem: "wrong.ts: ")
            #expect(try hls.view.problems().contains { $0.contains("padding") && $0.contains("key") })
            for name in ["none", "short", "wrong"] {
                #expect(try hls.read("\(name).m3u8").output == "#EXTM3U\n#EXTINF:1,\n\(name).ts\n")
            }
            try hls.expectSegments("good.ts")
            // A repaired file must work at the next open.
            try hls.write("none.bin", HlsView.key(1))
            try hls.expectSegments("none.ts")
            #expect(try !hls.view.problems().contains { $0.hasPrefix("none.ts") })
        }

        @Test("content that stays encrypted is named when the view is mounted, and by status")
        func left() throws {
            let hls = try tree()
            for name in ["1.ts", "renamed.ts"] { try hls.segment(name, key: 1, vector: 0) }
            let uris = ["https://h/1.ts", "https://h/gone.ts?token=secret"]
            try hls.playlist("saved.m3u8", [HlsView.keyLine("k.bin", vector: 0)] + HlsView.lines(uris[0], uris[1]))
            let mounted = try hls.view.tryMount("hls").succeeded()
            #expect(
                mounted.errors.hasSuffix(
                    """
                    vaultfs: warning: renamed.ts: no playlist names it, and it looks encrypted
                    vaultfs: warning: saved.m3u8: encrypted, and not decrypted: line 6: 'vaultfs status' has the reasons

                    """), "\(mounted)")
            let problems = try hls.view.problems()
            #expect(problems.contains { $0.hasPrefix("saved.m3u8:6: https://h/gone.ts?…: there is no file gone.ts") })
            #expect(problems.contains { $0.hasPrefix("renamed.ts: no playlist names it") } && problems.count == 2)
            try hls.expectSegments("1.ts")
            let shown = ["#EXTM3U", "#EXTINF:1,", "1.ts", "#EXTINF:1,", HlsView.keyLine("k.bin", vector: 0), uris[1]]
            #expect(try hls.read("saved.m3u8").output == shown.map { $0 + "\n" }.joined())
        }

        @Test("a segment that is decrypted already is shown as it is, without its key")
        func decrypted() throws {
            let hls = try tree()
            let packet = "G" + String(repeating: "x", count: 187)
            let files = [
                "4.ts": String(repeating: packet, count: 4), "1.ts": packet, "1.m4s": "\0\0\0\u{18}styp and more",
                "1.vtt": "WEBVTT\n",
            ]
            for (name, text) in files { try hls.write(name, text) }
            try hls.playlist("l.m3u8", [HlsView.keyLine("gone")] + files.keys.flatMap { HlsView.lines($0) })
            try hls.view.mountInForeground("hls")
            for (name, text) in files { #expect(try hls.read(name).output == text, "\(name)") }
            try hls.expectSegments("good.ts")
        }

        @Test("a damaged segment removes no key from another segment")
        func damagedBesideGood() throws {
            let hls = try tree()
            for name in ["cut", "other"] {
                try hls.segment("\(name).ts", key: 1, vector: 0)
                try hls.playlist("\(name).m3u8", [HlsView.keyLine("k.bin")] + HlsView.lines("\(name).ts"))
            }
            try Command(["truncate", "-s", "1001", hls.path("cut.ts")]).run().succeeded()
            try hls.view.mountInForeground("hls")
            try hls.expectSegments("good.ts")
            // Now the key exists in memory only.
            try Command(["rm", hls.path("k.bin")]).run().succeeded()
            try hls.expectFailure("cut.ts", "Input/output error", problem: "cut.ts: ")
            try hls.expectSegments("other.ts")
        }

        @Test("segments: outside the tree, missing, cut")
        func segments() throws {
            let hls = try tree()
            let outside = "\(hls.view.keys)/outside.ts"
            try Data("outside".utf8).write(to: URL(fileURLWithPath: outside))
            try Command(["ln", "-s", outside, hls.path("link.ts")]).run().succeeded()
            try Command(["ln", "-s", "..", hls.path("up")]).run().succeeded()
            for (name, size) in [("cut", 1001), ("block", 1008), ("empty", 0)] {
                try hls.segment("\(name).ts", key: 1, vector: 0)
                try Command(["truncate", "-s", "\(size)", hls.path("\(name).ts")]).run().succeeded()
            }
            let uris = [
                "../keys/outside.ts", outside, "link.ts", "up/keys/outside.ts", "file://\(outside)", "gone.ts",
                "cut.ts", "block.ts", "empty.ts", "good.ts",
            ]
            try hls.playlist("all.m3u8", [HlsView.keyLine("k.bin", vector: 0)] + uris.flatMap { ["#EXTINF:1,", $0] })
            try hls.view.mountInForeground("hls")
            let problems = try hls.view.problems()
            for (number, reason) in [
                "points outside the tree", "there is no file outside.ts beside the playlist",
                "points outside the tree", "points outside the tree", "there is no file outside.ts beside the playlist",
                "there is no such file",
            ].enumerated() {
                let line = "all.m3u8:\(4 + 2 * number): \(uris[number])"
                #expect(problems.contains { $0.hasPrefix(line) && $0.contains(reason) }, "\(line): \(problems)")
            }
            // Two more problems are of files whose lengths show that they are cut.
            #expect(problems.count == 8)
            let key = HlsView.keyLine("k.bin", vector: 0)
            let left = uris.prefix(6).flatMap { ["#EXTINF:1,", $0] }
            let others = uris.dropFirst(6).flatMap { ["#EXTINF:1,", $0] }
            let none = "#EXT-X-KEY:METHOD=NONE"
            let shown = (["#EXTM3U", key] + left + [others[0], none] + others.dropFirst()).map { $0 + "\n" }.joined()
            #expect(try hls.read("all.m3u8").output == shown)
            #expect(try hls.read("gone.ts").errors.hasSuffix("No such file or directory\n"))
            try hls.expectFailure("cut.ts", "Input/output error", problem: "cut.ts: ")
            try hls.expectFailure("block.ts", "Input/output error", problem: "block.ts: ")
            try hls.expectFailure("empty.ts", "Input/output error", problem: "empty.ts: ")
            try hls.expectSegments("good.ts")
        }

        @Test("playlists: loops, a file that is no playlist, one playlist that contradicts another")
        func playlists() throws {
            let hls = try tree()
            func master(_ name: String, _ uris: String...) throws {
                try hls.playlist(name, uris.flatMap { ["#EXT-X-STREAM-INF:BANDWIDTH=1", $0] })
            }
            try master("a.m3u8", "sub/b.m3u8", "good.m3u8")
            try master("sub/b.m3u8", "../a.m3u8")
            try master("self.m3u8", "self.m3u8")
            try hls.playlist("segment.m3u8", [HlsView.keyLine("k.bin")] + HlsView.lines("segment.m3u8"))
            try hls.write("text.m3u8", "no playlist\n")
            try hls.write("twice.ts", "")
            for number in [1, 2] {
                try hls.playlist(
                    "twice\(number).m3u8",
                    [HlsView.keyLine("k.bin", vector: UInt64(number))] + HlsView.lines("twice.ts"))
            }
            try hls.view.mountInForeground("hls")
            for problem in [
                "text.m3u8:1: not a playlist: its first line is not #EXTM3U",
                "contradict each other on its encryption: twice1.m3u8:4 and twice2.m3u8:4",
            ] {
                let problems = try hls.view.problems()
                #expect(problems.contains { $0.contains(problem) }, "\(problem): \(problems)")
            }
            for name in ["a.m3u8", "sub/b.m3u8", "self.m3u8", "text.m3u8"] {
                #expect(try hls.read(name).output == String(contentsOfFile: hls.path(name), encoding: .utf8))
            }
            #expect(try hls.read("twice.ts").errors.hasSuffix(": Input/output error\n"))
            try hls.expectSegments("good.ts")
        }
    }
}
