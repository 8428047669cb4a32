import Foundation
import Glibc
import LinuxSystem
import Testing

@testable import ViewFormats

@Suite struct HlsIndexTests {
    @Test("Segments of playlists in several directories; files that no playlist mentions are plain")
    func tree() throws {
        let source = try HlsSource(["a/1.ts", "a/b c.ts", "shared/2.ts", "other.ts"])
        let text = playlist(
            keyLine("k"), "#EXTINF:1,", "1.ts?token=x#y", "#EXTINF:1,", "b%20c.ts", "#EXTINF:1,", "../shared/./2.ts")
        try source.write("a/list.M3U8", text)
        try source.write("master.m3u8", playlist("#EXT-X-STREAM-INF:X=1", "a/list.M3U8"))
        try source.index.scan()
        for name in ["a/1.ts", "a/b c.ts", "shared/2.ts"] { #expect(try source.content(name) == "a:k 1") }
        #expect(try source.content("other.ts") == "plain")
        #expect(source.problems() == [])
        let content = try #require(try source.index.open(Array("a/list.M3U8".utf8)))
        #expect(content.needed.isEmpty)
        let rendered = try content.rendered { (_, range) in range }
        #expect(rendered.count == text.count - keyLine("k").utf8.count - 1)
        #expect(try source.content("a/list.M3U8") == "playlist \(rendered.count)")
    }

    @Test("Names as a downloader may have saved them: with the query, with a percent sign")
    func literalNames() throws {
        let source = try HlsSource(["a.ts?x=1", "b%20c.ts", "100%.ts", "d e.ts", "d%20e.ts"])
        try source.write(
            "l.m3u8",
            playlist(
                keyLine("k"), "#EXTINF:1,", "a.ts?x=1", "#EXTINF:1,", "b%20c.ts", "#EXTINF:1,", "100%.ts",
                "#EXTINF:1,", "d%20e.ts"))
        try source.index.scan()
        for name in ["a.ts?x=1", "b%20c.ts", "100%.ts", "d%20e.ts"] { #expect(try source.content(name) == ":k 1") }
        #expect(try source.content("d e.ts") == "plain")
    }

    @Test("Links inside the tree and hard links lead to the same claims")
    func links() throws {
        let source = try HlsSource(["data/1.ts", "data/2.ts"])
        try source.run("ln -s ../data/1.ts data/link.ts; ln data/2.ts hard.ts; ln -s data linked")
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "data/link.ts", "#EXTINF:1,", "linked/2.ts"))
        try source.index.scan()
        #expect(try source.content("data/1.ts") == ":k 1")
        #expect(try source.content("hard.ts") == ":k 1")
        #expect(source.problems() == [])
    }

    @Test("A path that leads out of the tree is a problem of its line; the rest works")
    func outside() throws {
        let source = try HlsSource(["sub/1.ts"])
        try source.run(
            "echo secret > ../outside.ts; ln -s ../outside.ts out.ts; ln -s .. up; mkfifo fifo.ts; ln -s /proc/self/root magic"
        )
        let uris = [
            "../outside.ts", "sub/../../outside.ts", "\(source.path)/sub/1.ts", "out.ts", "up/outside.ts",
            "%2F\(source.path.dropFirst())/sub/1.ts",
            "%2e%2e/outside.ts", "file://\(source.path)/sub/1.ts", "https://example.com/a.ts", "//example.com/a.ts",
            "fifo.ts",
            "sub",
            "magic\(source.path)/sub/1.ts", "none.ts", "a%00b", "sub/1.ts",
        ]
        let text = playlist("\(keyLine("k"))\n" + uris.map { "#EXTINF:1,\n\($0)" }.joined(separator: "\n"))
        try source.write("l.m3u8", text)
        try source.index.scan()
        #expect(try source.content("sub/1.ts") == ":k 1")
        let problems = source.problems()
        #expect(problems.count == uris.count - 1)
        for (number, uri) in uris.dropLast().enumerated() {
            #expect(problems.contains { $0.hasPrefix("l.m3u8:\(4 + 2 * number): \(uri.prefix(40))") }, "\(uri)")
        }
        for line in [4, 6, 10, 12, 16] {
            #expect(
                problems.contains {
                    $0.hasPrefix("l.m3u8:\(line):") && $0.contains(": points outside the tree: it stays")
                })
        }
        let content = try #require(try source.index.open(Array("l.m3u8".utf8)))
        let rendered = String(decoding: try content.rendered { (_, range) in range }, as: UTF8.self)
        for uri in uris { #expect(rendered.contains("\n\(uri)\n")) }
    }

    @Test("Segments whose key cannot be used fail, and their playlist keeps its key lines; clear parts work")
    func sampleAES() throws {
        let source = try HlsSource(["1.ts", "2.ts", "3.ts", "clear.ts"])
        try source.write(
            "bad.m3u8",
            playlist(
                "#EXT-X-KEY:METHOD=AES-192,URI=\"k\"", "#EXTINF:1,", "1.ts", "#EXTINF:1,", "2.ts",
                "#EXT-X-KEY:METHOD=NONE", "#EXTINF:1,", "clear.ts"))
        try source.write("good.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "2.ts", "#EXTINF:1,", "3.ts"))
        try source.index.scan()
        let expected =
            "malformed: bad.m3u8:2: METHOD=AES-192 is not supported, only NONE, AES-128, AES-256 and SAMPLE-AES are"
        #expect(try source.content("1.ts") == expected)
        #expect(try source.content("2.ts") == ":k 1")
        #expect(try source.content("3.ts") == ":k 1")
        #expect(try source.content("clear.ts") == "plain")
        // The other playlist decrypts 2.ts.
        let none = "#EXT-X-KEY:METHOD=NONE\n"
        let moved = try source.text("bad.m3u8").replacing(none, with: "").replacing("2.ts", with: "\(none)2.ts")
        #expect(try source.rendered("bad.m3u8") == moved)
        #expect(source.problems() == [String(expected.dropFirst(11))])
    }

    @Test("A master that names itself, and two that name each other: reading ends")
    func loops() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("a.m3u8", playlist("#EXT-X-STREAM-INF:X=1", "a.m3u8", "#EXT-X-STREAM-INF:X=1", "b.m3u8"))
        try source.write("b.m3u8", playlist("#EXT-X-STREAM-INF:X=1", "a.m3u8", "#EXT-X-STREAM-INF:X=1", "c.m3u8"))
        try source.write("c.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "c.m3u8", "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        let text = "c.m3u8: no segment, and not decrypted: it stays as it is, with its key lines"
        #expect(source.problems() == ["c.m3u8:4: \(text)"])
        #expect(try source.content("1.ts") == ":k 1")
        #expect(try source.content("a.m3u8").hasPrefix("playlist"))
        #expect(try source.content("c.m3u8").hasPrefix("playlist"))
    }

    private static let noPlaylists = ".: no playlist (.m3u8, .m3u) is in the source: nothing is decrypted"

    @Test("A file that is no playlist, whatever its name, is shown unchanged")
    func noPlaylist() throws {
        let source = try HlsSource()
        try source.write("a.m3u8", Array("text\n".utf8))
        try source.write("b.m3u", Array("song.mp3\n".utf8))
        try source.run("mkdir d.m3u8; mkfifo f.m3u8; : > empty.m3u8")
        try source.index.scan()
        for name in ["a.m3u8", "b.m3u", "empty.m3u8"] { #expect(try source.content(name) == "plain") }
        #expect(try source.index.open(Array("a.m3u8".utf8)) == nil)
        let reason = "not a playlist: its first line is not #EXTM3U"
        #expect(
            source.problems() == [
                Self.noPlaylists, "a.m3u8:1: \(reason)", "empty.m3u8:1: \(reason)",
                "f.m3u8: cannot be read: it is not a regular file",
            ])
    }

    @Test("Names of missing segments count as segments")
    func missingNames() throws {
        let source = try HlsSource(["1.ts"], maximumSegments: 100)
        func playlist(_ name: String) -> [UInt8] {
            ViewFormatsTests.playlist(
                keyLine("k"), (0..<60).map { "#EXTINF:1,\n\(name)\($0).ts" }.joined(separator: "\n"))
        }
        for name in ["a", "b"] { try source.write("\(name).m3u8", playlist(name)) }
        try source.index.scan()
        // The index does not look up the segments of whichever playlist is read second.
        let refusals = source.problems().filter { $0.contains("the playlists name more than 100 segments") }
        #expect(refusals.count == 1)
        let refused = try #require(refusals.first?.prefix(1))
        #expect(source.problems().filter { $0.hasPrefix(refused) } == refusals)
    }

    @Test("A playlist whose ranges alternate between two files is soon opened", .timeLimit(.minutes(60)))
    func alternatingFiles() throws {
        let source = try HlsSource(["a.ts", "b.ts"], maximumSegments: 200_000)
        let lines = (0..<120_000).map { "#EXTINF:1,\n#EXT-X-BYTERANGE:16@\($0 * 16)\n\(["a", "b"][$0 % 2]).ts" }
        try source.write("l.m3u8", playlist(keyLine("k"), lines.joined(separator: "\n")))
        var times = [timespec(), timespec()]
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &times[0])
        // Its files end before the ranges: they are left.
        #expect(try source.index.open(Array("l.m3u8".utf8)) != nil)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &times[1])
        // 2 s, and 167 s if each reference is compared with all claims of its file.
        #expect(times[1].tv_sec - times[0].tv_sec < 20)
    }

    @Test("Where thousands of segments are missing, those that exist are found, also the ones that come later")
    func manyMissing() throws {
        let source = try HlsSource(maximumSegments: 10_000)
        let names = (0..<3000).map { "d/\($0).ts" }
        try source.write(["d/7.ts", "d/2999.ts"])
        let lines = names.map { "#EXTINF:1,\n\($0)" }.joined(separator: "\n")
        try source.write("l.m3u8", playlist(keyLine("k"), lines, "#EXTINF:1,\ne/1.ts"))
        try source.index.scan()
        for name in ["d/7.ts", "d/2999.ts"] { #expect(try source.content(name) == ":k 1") }
        try source.write(["d/2000.ts", "e/1.ts"])
        for name in ["d/2000.ts", "e/1.ts"] { #expect(try source.content(name) == ":k 1") }
        let text = try source.rendered("l.m3u8")
        #expect(text.contains("METHOD=NONE\nd/2000.ts\n"))
    }

    @Test("Problems are bounded, and so is the depth of directories")
    func bounds() throws {
        let source = try HlsSource(maximumSegments: 10_000)
        let missing = playlist((0..<100).map { "#EXTINF:1,\nmissing\($0)" }.joined(separator: "\n"))
        for number in 0..<40 { try source.write("\(number).m3u8", missing) }
        let deep = (0..<140).map { _ in "d" }.joined(separator: "/")
        try source.write("\(deep)/l.m3u8", missing)
        try source.index.scan()
        #expect(source.problems().count == HlsIndex.maximumProblems)
        try source.run("rm *.m3u8")
        for number in 0..<40 { source.index.refresh(Array("\(number).m3u8".utf8)) }
        let directory = (0..<129).map { _ in "d" }.joined(separator: "/")
        let tooDeep = "\(directory.prefix(256))…: cannot be read: more than 128 directories deep"
        #expect(source.problems() == [Self.noPlaylists, tooDeep])
    }

    @Test("A playlist with more segments than the index keeps is an error, until there is room")
    func tooManySegments() throws {
        let source = try HlsSource(["1.ts", "2.ts"], maximumSegments: 3)
        let text = playlist(keyLine("k"), "#EXTINF:1,", "1.ts", "#EXTINF:1,", "2.ts")
        for name in ["a.m3u8", "b.m3u8"] {
            try source.write(name, text)
            source.index.refresh(Array(name.utf8))
        }
        let error = "b.m3u8: the playlists name more than 3 segments: mount a part of the directory at a time"
        #expect(try source.content("b.m3u8") == "malformed: \(error)")
        #expect(throws: ViewError.malformed(error)) { try source.index.open(Array("b.m3u8".utf8)) }
        #expect(try source.content("1.ts") == ":k 1")
        #expect(source.problems() == [error])
        #expect(
            source.index.left().map(\.text).contains { $0.hasSuffix("it is refused, and its files stay as they are") })
        try source.run("rm a.m3u8")
        source.index.refresh(Array("a.m3u8".utf8))
        #expect(try source.index.open(Array("b.m3u8".utf8)) != nil)
        #expect(try source.content("2.ts") == ":k 1")
    }

    @Test("A playlist reached by a link is also one by its other name")
    func linkedPlaylist() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("lists/l.txt", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.run("ln -s lists/l.txt l.m3u8")
        try source.index.scan()
        #expect(try source.content("lists/l.txt").hasPrefix("playlist "))
        let path = source.index.playlistPath(of: try source.identity("lists/l.txt"))
        #expect(path == Array("l.m3u8".utf8))
        #expect(source.index.playlistPath(of: try source.identity("1.ts")) == nil)
        #expect(try source.content("1.ts") == ":k 1")
        #expect(source.problems() == [])
    }

    @Test("Any thread can look up, open and refresh", .timeLimit(.minutes(60)))
    func threads() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        let texts = ["1.ts", "2.ts"].map { playlist(keyLine("k"), "#EXTINF:1,", $0) }
        try source.write("l.m3u8", texts[0])
        try source.index.scan()
        let (index, path) = (source.index, source.path)
        let identities = [try source.identity("1.ts"), try source.identity("2.ts")]
        DispatchQueue.concurrentPerform(iterations: 4) { worker in
            for round in 0..<200 {
                switch worker {
                case 0: try? source.write("l.m3u8", texts[round % 2])
                case 1: index.refresh(Array("l.m3u8".utf8))
                case 2: _ = try? index.open(Array("l.m3u8".utf8))
                default:
                    for identity in identities { _ = index.decision(on: identity, size: 64, path: Array(path.utf8)) }
                }
            }
        }
        try source.write("l.m3u8", texts[1])
        index.refresh(Array("l.m3u8".utf8))
        #expect(try source.content("1.ts") == "plain")
        #expect(try source.content("2.ts") == ":k 1")
    }

    @Test("SAMPLE-AES: boxes decide for all files of the playlist, each with its init segment and its URI")
    func samples() throws {
        let source = try HlsSource()
        let initial = Mp4Boxes.ftyp + Mp4Boxes.moov(Mp4Boxes.track(Mp4Boxes.protectedEntry()))
        let fragment = Mp4Boxes.fragment(media: 40)
        for name in ["1", "2", "3", "r"] { try source.write("\(name).mp4", fragment) }
        try source.write("i.mp4", initial)
        try source.write("0.mp4", initial + fragment)
        func key(_ uri: String, _ format: String? = nil) -> String {
            "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"\(uri)\"" + (format.map { ",KEYFORMAT=\"\($0)\"" } ?? "")
        }
        try source.write(
            "a.m3u8",
            playlist(
                "#EXTINF:1,", "0.mp4", "#EXT-X-MAP:URI=\"i.mp4\"", key("data:,x", "urn:uuid:y"),
                key("skd://a", "com.apple.streamingkeydelivery"), "#EXTINF:1,", "1.mp4",
                key("k.bin"), "#EXTINF:1,", "2.mp4", "#EXT-X-BYTERANGE:1@0", "#EXTINF:1,", "r.mp4", key("l.bin"),
                "#EXT-X-BYTERANGE:1@1", "#EXTINF:1,", "r.mp4", "#EXT-X-KEY:METHOD=NONE", "#EXTINF:1,", "3.mp4"))
        try source.index.scan()
        #expect(try source.content("0.mp4") == "samples none")
        #expect(try source.content("i.mp4") == "samples none i.mp4")
        #expect(try source.content("1.mp4") == "samples skd://a i.mp4")
        #expect(try source.content("2.mp4") == "samples k.bin i.mp4")
        #expect(try source.content("r.mp4") == "samples several i.mp4")
        #expect(try source.content("3.mp4") == "samples none i.mp4")
        #expect(try source.rendered("a.m3u8").contains("EXT-X-KEY") == false)
        #expect(source.index.left().isEmpty)
        // Another playlist declares the whole file encrypted.
        try source.write("b.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.mp4"))
        try source.index.scan()
        #expect(try source.content("1.mp4").contains("contradict each other"))
        // Both keep their key lines.
        #expect(try source.rendered("b.m3u8") == source.text("b.m3u8"))
        #expect(try source.rendered("a.m3u8").contains("skd://a"))
        #expect(source.index.left().count == 2)
    }
}
