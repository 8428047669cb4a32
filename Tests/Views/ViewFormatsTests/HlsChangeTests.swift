import Foundation
import LinuxSystem
import Synchronization
import SystemPackage
import Testing

@testable import ViewFormats

/// Changes in a tree, all seen by the next lookup.
@Suite struct HlsChangeTests {
    @Test("A changed playlist's old claims are dropped; a removed one takes all its claims with it; a new one is found")
    func refresh() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        let path = Array("l.m3u8".utf8)
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        #expect(try source.content("1.ts") == ":k 1")
        try source.write("l.m3u8", playlist(keyLine("m"), "#EXTINF:1,", "2.ts"))
        source.index.refresh(path)
        #expect(try source.content("1.ts") == "plain")
        #expect(try source.content("2.ts") == ":m 1")
        try source.write("new.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        source.index.refresh(Array("new.m3u8".utf8))
        #expect(try source.content("1.ts") == ":k 1")
        try source.run("rm l.m3u8")
        source.index.refresh(path)
        #expect(try source.content("2.ts") == "plain")
        #expect(throws: ViewError.store(.system(.noSuchFileOrDirectory))) { try source.index.open(path) }
    }

    @Test("An open of a playlist sees that another one no longer contradicts it")
    func rightedPlaylist() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("a.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.write("b.m3u8", playlist(keyLine("j"), "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        #expect(try source.rendered("a.m3u8").contains("EXT-X-KEY"))
        try source.write("b.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        #expect(try source.rendered("a.m3u8").contains("EXT-X-KEY") == false)
    }

    @Test("An open of a segment sees that its playlist has changed in place")
    func changedPlaylist() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("l.m3u8", playlist(keyLine("k", ""), "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        try source.write("new", playlist("#EXT-X-MEDIA-SEQUENCE:7", keyLine("k", ""), "#EXTINF:1,", "1.ts"))
        try source.run("cat new >l.m3u8; rm new")
        let decision = source.index.decision(
            on: try source.identity("1.ts"), size: 64, path: Array("1.ts".utf8), isOpening: true)
        guard case .chains = decision else { throw PlaylistError(line: 0, text: "\(decision)") }
        #expect(try source.content("1.ts") == ":k 7")
    }

    @Test("A master playlist announces the keys of its playlists if one of them has key lines")
    func sessionKey() throws {
        let source = try HlsSource(["1.ts"])
        let line = "#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\""
        try source.write("m.m3u8", playlist(line, "#EXT-X-STREAM-INF:BANDWIDTH=1", "l.m3u8"))
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts", "#EXTINF:1,", "2.ts"))
        try source.index.scan()
        #expect(try source.rendered("m.m3u8").contains(line))
        try source.write(["2.ts"])
        #expect(try source.rendered("l.m3u8").contains("EXT-X-KEY") == false)
        #expect(try source.rendered("m.m3u8").contains(line) == false)
    }

    @Test("A source without a playlist is named")
    func noPlaylist() throws {
        let source = try HlsSource(["1.ts"])
        try source.index.scan()
        let text = "no playlist (.m3u8, .m3u) is in the source: nothing is decrypted"
        #expect(source.problems() == [".: \(text)"])
        #expect(source.index.left().map(\.text) == [text])
    }

    @Test("A segment that comes after its playlist, or replaces another, is recognized by its name")
    func lateSegments() throws {
        let source = try HlsSource()
        try source.write("sub/l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "../x/./1.ts"))
        try source.index.scan()
        #expect(
            source.problems() == [
                "sub/l.m3u8:4: ../x/./1.ts: there is no such file: it stays as it is, with its key lines"
            ])
        try source.write(["x/1.ts"])
        #expect(try source.content("x/1.ts") == "sub:k 1")
        #expect(source.problems() == [])
        // Write the new file beside the first, so that it has another inode.
        try source.run("cp x/1.ts x/new; mv x/new x/1.ts")
        #expect(try source.content("x/1.ts") == "sub:k 1")
    }

    @Test("A file that only has a segment's inode is no segment, nor is a file moved out of its place")
    func inodeReused() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts", "#EXTINF:1,", "./2.ts"))
        try source.index.scan()
        try source.run("mv 1.ts notes; mv l.m3u8 text; cp text l.m3u8")
        #expect(try source.content("notes") == "plain")
        #expect(try source.content("text") == "plain")
        #expect(try source.content("2.ts") == ":k 1")
        #expect(try source.content("l.m3u8").hasPrefix("playlist"))
    }

    @Test("A playlist that is written in place is read again; one that has two names still counts under the other name")
    func inPlace() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.run("ln l.m3u8 m.m3u8")
        try source.index.scan()
        try source.run("sed 's/\"k\"/\"j\"/' l.m3u8 > new; cat new > l.m3u8")
        for name in ["l.m3u8", "m.m3u8"] { source.index.refresh(Array(name.utf8)) }
        #expect(try source.content("1.ts") == ":j 1")
        try source.run("rm m.m3u8")
        source.index.refresh(Array("m.m3u8".utf8))
        #expect(try source.content("l.m3u8").hasPrefix("playlist"))
        #expect(try source.content("1.ts") == ":j 1")
    }

    @Test("A directory that is renamed, moved in or made: its playlists are found by the first file opened in it")
    func renamedDirectory() throws {
        let source = try HlsSource(["a/1.ts", "a/2.ts", "b/other.ts"])
        try source.write("a/lists/l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "../1.ts", "#EXTINF:1,", "../2.ts"))
        try source.index.scan()
        try source.run("mv a b/c")
        #expect(try source.content("b/c/1.ts") == "b/c/lists:k 1")
        #expect(try source.content("b/c/2.ts") == "b/c/lists:k 1")
        // Look up the playlist first. Its old version contradicts it, but has gone.
        try source.run("mv b/c d")
        source.index.refresh(Array("d/lists/l.m3u8".utf8))
        #expect(try source.content("d/1.ts") == "d/lists:k 1")
        #expect(source.problems() == [])
        try source.write(["new/1.ts", "new/2.ts", "new/3.ts"])
        try source.write("new/l.m3u8", playlist(keyLine("n"), "#EXTINF:1,", "1.ts"))
        #expect(try source.content("new/1.ts") == "new:n 1")
        #expect(try source.content("new/2.ts") == "plain")
        // Add a new playlist in a known directory, and one in the directory above.
        try source.write("new/more.m3u8", playlist(keyLine("m"), "#EXTINF:1,", "2.ts"))
        #expect(try source.content("new/2.ts") == "new:m 1")
        try source.write("above.m3u8", playlist(keyLine("o"), "#EXTINF:1,", "new/3.ts"))
        #expect(try source.content("new/3.ts") == ":o 1")
    }

    @Test("A lock stops a reading, which takes no knowledge away; after an unlock the playlist is read")
    func interrupted() throws {
        let source = try HlsSource(["1.ts", "2.ts"])
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        let isLocked = Mutex(true)
        source.interruption.setLock { isLocked.withLock { $0 } }
        try source.write("l.m3u8", playlist(keyLine("m"), "#EXTINF:1,", "1.ts"))
        try source.write("new.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "2.ts"))
        #expect(throws: ViewError.store(.locked)) { try source.index.open(Array("l.m3u8".utf8)) }
        #expect(!source.index.refresh(Array("new.m3u8".utf8)))
        // The index still decides by the playlist's earlier content.
        #expect(try source.content("1.ts") == ":k 1")
        #expect(try source.content("2.ts") == "plain")
        isLocked.withLock { $0 = false }
        #expect(try source.content("2.ts") == ":k 1")
        source.index.refresh(Array("l.m3u8".utf8))
        #expect(try source.content("1.ts") == ":m 1")
        #expect(source.problems() == [])
    }

    @Test("A playlist that cannot be read now still says how its files are encrypted, and is named")
    func unreadable() throws {
        let source = try HlsSource(["1.ts"])
        try source.write("l.m3u8", playlist(keyLine("k"), "#EXTINF:1,", "1.ts"))
        try source.index.scan()
        // For a moment, a directory has the playlist's name.
        try source.run("mv l.m3u8 m; mkdir l.m3u8")
        source.index.refresh(Array("l.m3u8".utf8))
        #expect(try source.content("1.ts") == ":k 1")
        #expect(source.problems() == ["l.m3u8: cannot be read: it is a directory"])
        #expect(source.index.left().map(\.text) == ["cannot be read: it is a directory"])
        try source.run("rmdir l.m3u8; mv m l.m3u8")
        source.index.refresh(Array("l.m3u8".utf8))
        #expect(source.problems() == [] && source.index.left().isEmpty)
    }
}
