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

        private func make(_ kind: String) throws -> (view: ViewUnderTest, keys: [String]) {
            let view = try ViewUnderTest()
            try view.account.program("mp4_files.py", [kind, view.store.path]).succeeded()
            let names = try FileManager.default.contentsOfDirectory(atPath: view.keys)
            return (view, names.flatMap { ["--key", "\($0)=\(view.keys)/\($0)"] })
        }

        /// The packets of a film, without their times.
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
                // The encryptor of this test is right.
                let key = try String(contentsOfFile: keys[1].components(separatedBy: "=")[1], encoding: .utf8)
                #expect(
                    try packets("\(view.source)/film.mp4", ["-decryption_key", String(key.dropLast())]) == clear)
            }
            try view.mount("mp4", keys)
            // A read of a fragment with a key that the open did not need is ENOKEY, until the key is there.
            let reads = "for i in $(seq 50); do cat \"$1\" >/dev/null 2>&1 && exit; sleep 0.2; done; exit 1"
            if kind == "rotation" {
                try Command(["sh", "-c", reads, "sh", "\(view.mountpoint)/film.mp4"]).run().succeeded()
            }
            let result = try view.program("view_compare.py", [view.mountpoint, view.originals])
            #expect(result.exitCode == 0, "\(result)")
            #expect(try packets("\(view.mountpoint)/film.mp4") == clear)
            #expect(try kind == "rotation" || view.problems().isEmpty)
            try view.unmount()
        }
    }
}
