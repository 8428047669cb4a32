import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A source that changes under its mount.
    @Suite struct HlsChanges {
        private func tree() throws -> HlsView {
            let hls = try HlsView()
            try hls.write("k1.bin", HlsView.key(1))
            try hls.write("k2.bin", HlsView.key(2))
            try hls.segment("live/0.ts", key: 1, vector: 0)
            try hls.playlist("live/out.m3u8", [HlsView.keyLine("../k1.bin")] + HlsView.lines("0.ts"))
            try hls.view.mount("hls")
            try hls.expectSegments("live/0.ts")
            return hls
        }

        /// Returns the mount's text of a playlist with these segments.
        private func shown(_ names: [String]) -> String {
            (["#EXTM3U"] + names.flatMap { ["#EXTINF:1,", $0] }).map { $0 + "\n" }.joined()
        }

        @Test("a playlist replaced by one with other keys, and its segments by others")
        func replaced() throws {
            let hls = try tree()
            try hls.segment("live/0.ts", key: 2, vector: 5)
            try hls.playlist(
                "live/out.m3u8", ["#EXT-X-MEDIA-SEQUENCE:5", HlsView.keyLine("../k2.bin")] + HlsView.lines("0.ts"))
            #expect(try hls.read("live/out.m3u8").output.contains("SEQUENCE:5\n#EXTINF"))
            try hls.expectSegments("live/0.ts")
            #expect(try hls.view.problems().isEmpty)
        }

        @Test("a download that continues: segments appended, and the key changed", arguments: [true, false])
        func growing(isAppended: Bool) throws {
            let hls = try tree()
            var lines = [HlsView.keyLine("../k1.bin")] + HlsView.lines("0.ts")
            var names = ["0.ts"]
            for number in 1..<8 {
                let key: UInt8 = number < 4 ? 1 : 2
                try hls.segment("live/\(number).ts", key: key, vector: UInt64(number))
                names.append("\(number).ts")
                let added = (number == 4 ? [HlsView.keyLine("../k2.bin")] : []) + HlsView.lines("\(number).ts")
                lines += added
                if isAppended {
                    let file = try FileHandle(forWritingTo: URL(fileURLWithPath: hls.path("live/out.m3u8")))
                    try file.seekToEnd()
                    try file.write(contentsOf: Data(added.map { $0 + "\n" }.joined().utf8))
                    try file.close()
                } else {
                    try hls.playlist("live/out.m3u8", lines)
                }
                // Read the playlist first, as players do.
                #expect(try hls.read("live/out.m3u8").output == shown(names))
                try hls.expectSegments("live/\(number).ts")
            }
            #expect(try hls.view.problems().isEmpty)
        }

        @Test("new and renamed files, whichever of them is opened first")
        func directories() throws {
            let hls = try tree()
            try hls.write("new/k.bin", HlsView.key(2))
            try hls.segment("new/0.ts", key: 2, vector: 0)
            try hls.playlist("new/out.m3u8", [HlsView.keyLine("k.bin")] + HlsView.lines("0.ts"))
            try hls.expectSegments("new/0.ts")
            // Add a playlist in a known directory, for a file that was not a segment before.
            try hls.segment("live/more.ts", key: 2, vector: 0)
            try hls.playlist("live/more.m3u8", [HlsView.keyLine("../k2.bin")] + HlsView.lines("more.ts"))
            try hls.expectSegments("live/more.ts")
            for name in ["live", "new"] {
                try Command(["mv", hls.path(name), hls.path("moved-\(name)")]).run().succeeded()
            }
            let segment = try hls.read("moved-live/0.ts")
            #expect(segment.output == HlsView.content("live/0.ts"), "\(segment.errors)")
            #expect(try hls.read("moved-new/out.m3u8").output == shown(["0.ts"]))
            #expect(try hls.read("moved-new/0.ts").output == HlsView.content("new/0.ts"))
            #expect(try hls.view.problems().isEmpty)
        }
    }
}
