import Foundation
import LinuxSystem
import TestSupport
import Testing

@testable import ViewFormats

/// Playlists and segments made by ffmpeg, decrypted by openssl with the index's keys.
@Suite struct HlsProgramTests {
    private static let key = "0102030405060708090a0b0c0d0e0f10"

    /// Makes the directories `plain` and `encrypted`, each with ffmpeg's `out.m3u8`.
    private func make(_ arguments: String, information: String) throws -> HlsSource {
        let source = try HlsSource()
        try source.run(
            """
            exec > ../log 2>&1
            mkdir plain encrypted
            printf '\\1\\2\\3\\4\\5\\6\\7\\10\\11\\12\\13\\14\\15\\16\\17\\20' > encrypted/k.key
            printf '\(information)' > encrypted/information
            ffmpeg -v error -f lavfi -i testsrc=size=64x48:rate=25:duration=4 -c:v mpeg4 -g 25 -bitexact source.mp4
            hls="-v error -i ../source.mp4 -c copy -fflags +bitexact -f hls -hls_time 1 -hls_list_size 0"
            (cd plain && ffmpeg $hls \(arguments) out.m3u8)
            (cd encrypted && ffmpeg $hls -hls_key_info_file information \(arguments) out.m3u8)
            """)
        try source.index.scan()
        return source
    }

    private func bytes(_ source: HlsSource, _ name: String) throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: "\(source.path)/\(name)")))
    }

    /// Decrypts one part of a file with openssl.
    private func decrypt(_ source: HlsSource, _ name: String, _ part: HlsSegment.Part) throws -> [UInt8] {
        let all = try bytes(source, name)
        try source.write("part", part.bytes.map { Array(all[Int($0.lowerBound)..<Int($0.upperBound)]) } ?? all)
        let digits = hex(part.encryption.vector)
        let vector = String(repeating: "0", count: 32 - digits.count) + digits
        try source.run("openssl enc -d -aes-128-cbc -K \(Self.key) -iv \(vector) -in part -out decrypted")
        return try bytes(source, "decrypted")
    }

    private func segment(_ source: HlsSource, _ name: String) throws -> HlsSegment {
        let status = try source.status(name)
        let decision = source.index.decision(
            on: FileIdentity(status), size: UInt64(status.st_size), path: Array(name.utf8))
        guard case .chains(let segment) = decision else { throw TestFailure("\(name): \(decision)") }
        return segment
    }

    @Test(
        "Segments: a zero vector, a given one, one for each segment",
        arguments: [
            ("", "k.key\\nk.key\\n", ["0", "0", "0", "0"]),
            (
                "", "k.key\\nk.key\\n0123456789abcdef0000000000000001\\n",
                [String](repeating: "123456789abcdef0000000000000001", count: 4)
            ),
            ("-hls_flags periodic_rekey -start_number 9", "k.key\\nk.key\\n", ["9", "a", "b", "c"]),
        ])
    func segments(_ arguments: String, _ information: String, _ vectors: [String]) throws {
        let source = try make("\(arguments) -hls_segment_filename s%d.ts", information: information)
        let first = arguments.isEmpty ? 0 : 9
        for (number, vector) in vectors.enumerated() {
            let name = "s\(first + number).ts"
            let segment = try segment(source, "encrypted/\(name)")
            #expect(segment.parts.count == 1 && segment.parts[0].bytes == nil)
            #expect(hex(segment.parts[0].encryption.vector) == vector)
            #expect(try decrypt(source, "encrypted/\(name)", segment.parts[0]) == bytes(source, "plain/\(name)"))
            #expect(try source.content("plain/\(name)") == "plain")
        }
        let content = try #require(try source.index.open(Array("encrypted/out.m3u8".utf8)))
        #expect(try content.rendered { (_, range) in range } == bytes(source, "plain/out.m3u8"))
        #expect(source.problems() == [])
    }

    @Test("A single file: every byte range is its own chain, padded")
    func singleFile() throws {
        let source = try make("-hls_flags single_file", information: "k.key\\nk.key\\n")
        let segment = try segment(source, "encrypted/out.ts")
        #expect(segment.parts.count == 4)
        var plaintext: [UInt8] = []
        var chains: [(CipherChain, UInt64)] = []
        for part in segment.parts {
            let piece = try decrypt(source, "encrypted/out.ts", part)
            plaintext += piece
            let encryption = CipherChain.Encryption(key: 0, vector: .bytes(part.encryption.vector), padding: .pkcs7)
            let chain = CipherChain(ciphertext: try #require(part.bytes), encryption: encryption)
            chains.append((chain, UInt64(piece.count)))
        }
        #expect(try plaintext == bytes(source, "plain/out.ts"))
        #expect(try source.content("encrypted/out.m3u8") == "playlist ?")
        let content = try #require(try source.index.open(Array("encrypted/out.m3u8".utf8)))
        #expect(content.needed.count == 1)
        let map = ChainMap(chains)
        let rendered = try content.rendered { (_, range) throws(ViewError) in try map.plaintext(of: range) }
        #expect(try rendered == bytes(source, "plain/out.m3u8"))
    }

    /// ffmpeg cannot write encrypted fMP4, but reads files of other writers.
    @Test(
        "fMP4 with its initialization section encrypted is read as ffmpeg reads it",
        arguments: [",IV=0x0000000000000000000000000000002a", ""])
    func fragments(_ vector: String) throws {
        let source = try HlsSource()
        try source.run(
            """
            exec > ../log 2>&1
            printf '\\1\\2\\3\\4\\5\\6\\7\\10\\11\\12\\13\\14\\15\\16\\17\\20' > k.key
            ffmpeg -v error -f lavfi -i testsrc=size=64x48:rate=25:duration=2 -c:v mpeg4 -g 25 -bitexact -f hls -hls_time 1 \\
                -hls_segment_type fmp4 -hls_list_size 0 -start_number 5 -hls_segment_filename s%d.m4s out.m3u8
            ffmpeg -v error -i out.m3u8 -c copy -f framemd5 plain.md5
            sed -i 's/^#EXT-X-MAP/#EXT-X-KEY:METHOD=AES-128,URI="k.key"\(vector)\\n&/' out.m3u8
            n=5
            for file in init.mp4 s5.m4s s6.m4s; do
                cp $file plain.$file
                [ $file != s6.m4s ] || n=6
                [ -z "\(vector)" ] || n=42
                openssl enc -aes-128-cbc -K \(Self.key) -iv $(printf %032x $n) -in plain.$file -out $file
            done
            ffmpeg -v error -allowed_extensions ALL -i out.m3u8 -c copy -f framemd5 encrypted.md5
            cmp plain.md5 encrypted.md5
            """)
        try source.index.scan()
        #expect(source.problems() == [])
        for name in ["init.mp4", "s5.m4s", "s6.m4s"] {
            let segment = try segment(source, name)
            #expect(segment.parts.count == 1)
            #expect(try decrypt(source, name, segment.parts[0]) == bytes(source, "plain.\(name)"))
        }
    }
}
