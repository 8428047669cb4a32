import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// MP4 files with encrypted samples.
    @Suite struct Mp4 {
        static let kinds = [
            "h264", "hevc", "aac", "both", "pattern-5-5", "pattern-10-0", "cbc1", "vectors", "lead", "rotation",
            "auxiliary", "unindexed", "whole",
        ]
        /// The kinds of films under a playlist.
        static let playlistKinds = [
            "hls-lead", "hls-both", "hls-rotation", "ranges-h264", "ranges-both", "ranges-rotation",
        ]

        private func make(_ kind: String) throws -> (view: ViewUnderTest, keys: [String]) {
            let view = try ViewUnderTest()
            try view.account.program("views/mp4_files.py", [kind, view.store.path]).succeeded()
            let names = try FileManager.default.contentsOfDirectory(atPath: view.keys)
            return (view, names.flatMap { ["--key", "\($0)=\(view.keys)/\($0)"] })
        }

        /// Returns a film's packets without their times.
        private func packets(_ path: String, _ options: [String] = []) throws -> [String] {
            let arguments = ["-i", path, "-map", "0", "-c", "copy", "-f", "framemd5", "-"]
            return try Command(["ffmpeg", "-v", "error"] + options + arguments).run().succeeded().output
                .split(separator: "\n").filter { !$0.hasPrefix("#") }
                .map { line in
                    let fields = line.split(separator: ",")
                    return "\(fields[0]) \(fields[4]) \(fields[5])"
                }
        }

        @Test("the samples are decrypted, every byte and in every way to read", arguments: kinds)
        func kind(_ kind: String) throws {
            let (view, keys) = try make(kind)
            let clear = try packets("\(view.store.path)/clear/film.mp4")
            #expect(clear.count > 70)
            if ["h264", "hevc", "aac", "cbc1", "vectors", "lead", "auxiliary"].contains(kind) {
                // First check this test's encryptor.
                let key = try String(contentsOfFile: keys[1].components(separatedBy: "=")[1], encoding: .utf8)
                #expect(
                    try packets("\(view.source)/film.mp4", ["-decryption_key", String(key.dropLast())]) == clear)
            }
            try view.mount("mp4", keys)
            try view.program("views/view_compare.py", [view.mountpoint, view.originals]).succeeded()
            #expect(try packets("\(view.mountpoint)/film.mp4") == clear)
            #expect(try view.problems().isEmpty)
            try view.unmount()
        }

        @Test("hls: the same with a playlist, in segments and in byte ranges of one file", arguments: playlistKinds)
        func playlist(_ kind: String) throws {
            let (view, keys) = try make(kind)
            // If the playlist's URI names a key, that key is enough.
            let isOne = kind == "hls-lead" || kind == "ranges-h264"
            try view.mount(
                "hls", isOne ? ["--key", "skd://film=\(view.keys)/\(String(repeating: "10", count: 16))"] : keys)
            try view.program("views/view_compare.py", [view.mountpoint, view.originals]).succeeded()
            #expect(
                try packets("\(view.mountpoint)/film.m3u8").sorted()
                    == packets("\(view.store.path)/clear/film.mp4").sorted())
            #expect(try view.problems().isEmpty)
            try view.unmount()
            let copy = "\(view.store.path)/copy"
            try view.vaultfs(["export", "--view", "hls", view.source, copy] + keys).succeeded()
            try view.program("views/view_compare.py", [copy, view.originals]).succeeded()
        }

        @Test("the URI of several keys names none of them")
        func sharedURI() throws {
            let (view, _) = try make("ranges-rotation")
            try view.mount("hls", ["--key", "skd://film=\(view.keys)/a0\("0102030405060708090a0b0c0d0e0f")"])
            #expect(
                try view.account.run(["cat", "\(view.mountpoint)/film.mp4"]).errors.contains(
                    "Required key not available"))
            #expect(try view.problems().contains { $0.contains("no key for a0") })
            try view.unmount()
        }

        /// The way to keys other than `--key`.
        enum Finding: CaseIterable { case files, command }

        @Test("a fragment's key is fetched when it is read, and there at the next read", arguments: Finding.allCases)
        func later(finding: Finding) throws {
            let (view, _) = try make("rotation")
            let gate = "\(view.store.path)/gate"
            var options: [String] = []
            switch finding {
            case .files:
                let rename = "for key in *; do cp \"$key\" \"$1/$key.key\" && cp \"$key\" \"$2/$key.key\"; done"
                try Command(["sh", "-c", "cd \(view.keys) && \(rename)", "sh", view.source, view.originals]).run()
                    .succeeded()
            case .command:
                // The open needs the first key. For the others the command waits, so the first read certainly precedes
                // them.
                let wait = "until [ -e '\(gate)' ]; do sleep 0.05; done"
                options = [
                    "--key-command",
                    "case $VAULTFS_KEY_ID in a0*) ;; *) \(wait) ;; esac; cat '\(view.keys)/'\"$VAULTFS_KEY_ID\"",
                ]
            }
            try view.mount("mp4", options)
            let film = "\(view.mountpoint)/film.mp4"
            if finding == .command {
                let first = try view.account.run(["cat", film])
                #expect(first.errors.contains("Required key not available"), "\(first)")
                #expect(try view.problems().contains { $0.contains("it is fetched in the background") })
                try Data().write(to: URL(fileURLWithPath: gate))
            }
            try poll("the keys") { try view.account.run(["cmp", film, "\(view.originals)/film.mp4"]).exitCode == 0 }
            try view.unmount()
            // Unlike a mount, an export waits for keys.
            let copy = "\(view.store.path)/copy"
            try view.vaultfs(["export", "--view", "mp4", view.source, copy] + options).succeeded()
            try Command(["cmp", "\(copy)/film.mp4", "\(view.originals)/film.mp4"]).run().succeeded()
        }

        @Test(
            "a lock in the middle of playing refuses every read, and the unlock goes on",
            arguments: ["h264", "rotation"])
        func lock(_ kind: String) throws {
            let (view, keys) = try make(kind)
            try view.mount("mp4", keys + ["--on-lock", "forget"])
            try view.program(
                "views/view_lock.py", [view.account.binary, view.mountpoint, view.originals, view.lockFile, "forget"]
            ).succeeded()
            try view.unmount()
        }

        @Test("boxes that lie take no time: a file beside them is read, and a lock waits for nothing")
        func lying() throws {
            let (view, keys) = try make("lying")
            try Data(repeating: 7, count: 5000).write(to: URL(fileURLWithPath: "\(view.source)/other"))
            try view.mount("mp4", keys)
            let film = "\(view.mountpoint)/film.mp4"
            let reader = try view.account.command(["sh", "-c", "while :; do cat \(film) > /dev/null 2>&1; done"])
                .start()
            defer { reader.kill(SIGKILL) }
            try poll("a read") { try view.statistic("damagedReads") > 0 }
            let read = try view.account.run(["wc", "-c", "\(view.mountpoint)/other"], timeout: .seconds(10))
            #expect(read.output.hasPrefix("5000"))
            try view.vaultfs(["lock", view.mountpoint], timeout: .seconds(10)).succeeded()
            try view.vaultfs(["unlock", view.mountpoint]).succeeded()
            // Each open forgets the problem until a read meets it again.
            try poll("the problem") {
                try view.problems().contains { $0.contains("4194304 samples of 0 bytes do not fit into the file") }
            }
            reader.kill(SIGKILL)
            try view.unmount()
        }

        @Test("SAMPLE-AES in MPEG-TS and a missing init segment are errors with a reason; subtitles are shown")
        func refusedSegments() throws {
            let hls = try HlsView()
            let key = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://film\",KEYFORMAT=\"com.apple.streamingkeydelivery\""
            let transport = Data((0..<564).map { $0 % 188 == 0 ? 0x47 : 0 })
            try hls.write("a.ts", transport)
            try hls.write("b.m4s", Data([0, 0, 0, 8]) + Data("moof".utf8))
            try hls.write("c.vtt", "WEBVTT\n\n")
            try hls.playlist("film.m3u8", [key] + HlsView.lines("a.ts", "b.m4s", "c.vtt"))
            try hls.view.mountInForeground("hls")
            try hls.expectFailure(
                "a.ts", "Input/output error",
                problem: "a.ts: SAMPLE-AES in MPEG-TS or packed audio is not supported, only in MP4")
            try hls.expectFailure("b.m4s", "Input/output error", problem: "b.m4s: there is no init segment")
            #expect(try hls.read("c.vtt").output == "WEBVTT\n\n")
            try hls.view.unmount()
        }
    }
}
