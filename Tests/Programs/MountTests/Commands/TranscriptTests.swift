import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A session on a terminal, word for word.
    @Suite(.serialized) struct Transcript {
        @Test("the first hour", .enabled(if: Account.newcomer != nil, "takes root, for a user without other mounts"))
        func firstHour() throws {
            let account = try #require(Account.newcomer)
            let place = try TemporaryDirectory()
            try Command(["chown", "\(Account.newcomerID)", place.path]).run().succeeded()
            defer { _ = try? account.run(["fusermount3", "-uz", place.appending("Private")]) }
            let transcripts = "\(Products.support)/Transcripts"
            let script = try String(contentsOfFile: "\(transcripts)/first-hour.sh", encoding: .utf8)
            let programs = URL(fileURLWithPath: account.binary).deletingLastPathComponent().path
            let session = try account.run(
                ["sh", "-c", "PATH=\(programs):$PATH exec bash -c \"$0\"", script], directory: place.path,
                timeout: .seconds(120))
            Products.countMount()
            let expected = try String(contentsOfFile: "\(transcripts)/first-hour.txt", encoding: .utf8)
            expectSameLines(Self.withoutChances(session.output, place.path), as: expected, "the first hour")
            #expect(expected.split(separator: "\n").count <= 41)
        }

        @Test(
            "the examples of the README and of the chapter are parts of the first hour",
            arguments: ["README.md", "Manual/FirstHour.md"])
        func examples(page: String) throws {
            var session = try String(contentsOfFile: "\(Products.support)/Transcripts/first-hour.txt", encoding: .utf8)
                .split(separator: "\n")[...]
            let text = try String(contentsOfFile: "\(Products.root)/\(page)", encoding: .utf8)
            let parts = text.split(separator: "```\n")
            let examples = parts.filter { $0.hasPrefix("$ ") }
            #expect(!examples.isEmpty)
            if page == "Manual/FirstHour.md" {
                // The reader first makes these files.
                let script = try String(
                    contentsOfFile: "\(Products.support)/Transcripts/first-hour.sh", encoding: .utf8)
                let files = try #require(parts.first { $0.contains("mkdir Papers") })
                #expect(script.contains(files), "\(files)")
            }
            for line in examples.joined().split(separator: "\n") where line != "…" {
                let found = try #require(session.firstIndex(of: line), "\(line)")
                session = session[(found + 1)...]
            }
        }

        @Test(
            "the status of five mounts fits a small terminal, and lock without a name locks all",
            .enabled(if: Account.newcomer != nil, "as above"))
        func fiveMounts() throws {
            let account = try #require(Account.newcomer)
            let place = try TemporaryDirectory()
            try Command(["chown", "\(Account.newcomerID)", place.path]).run().succeeded()
            let points = (1...5).map { place.appending("M\($0)") }
            defer { for point in points { _ = try? account.run(["fusermount3", "-uz", point]) } }
            let script = """
                set -e; umask 077; echo 'a long passphrase' >pass
                for i in 1 2 3 4 5; do
                    "$0" init V$i --passfile pass --no-recovery-key --scrypt-logn 10 >/dev/null
                    "$0" mount V$i M$i --passfile pass
                done
                "$0" status
                echo locks
                "$0" lock
                "$0" lock --verbose M1 >/dev/null
                "$0" unmount --all >/dev/null
                """
            let output = try account.run(
                ["sh", "-c", script, account.binary], directory: place.path, timeout: .seconds(120)
            ).succeeded().output.split(separator: "\n")
            let status = output.prefix { $0 != "locks" }
            let locks = output.dropFirst(status.count + 1)
            #expect(locks.map { $0.prefix { $0 != ":" } } == points.map { $0[...] })
            #expect(
                locks.allSatisfy { $0.contains(": locked and purged; 'vaultfs unlock' will ask for no passphrase") },
                "\(locks)")
            for _ in points { Products.countMount() }
            #expect(status.count <= 24)
            for point in points { #expect(status.contains { $0.contains(" \(point) ") && $0.hasPrefix("unlocked") }) }
        }

        @Test(
            "of mounts above one another all go, the newest first; alone, one names those that keep it in use",
            .enabled(if: Account.newcomer != nil, "as above"))
        func aboveOneAnother() throws {
            let account = try #require(Account.newcomer)
            let place = try TemporaryDirectory()
            try Command(["chown", "\(Account.newcomerID)", place.path]).run().succeeded()
            // The mounts' alphabetical order is the reverse of the order in which they are made.
            let (lowest, inner, view) = (place.appending("M3"), place.appending("M2"), place.appending("M1"))
            defer { for point in [view, inner, lowest] { _ = try? account.run(["fusermount3", "-uz", point]) } }
            let script = """
                set -e; umask 077; echo 'a long passphrase' >pass
                new() { "$0" init $1 --passfile pass --no-recovery-key --scrypt-logn 10 >/dev/null; }
                new V; "$0" mount V M3 --passfile pass -q
                new M3/V; "$0" mount M3/V M2 --passfile pass -q
                mkdir M3/film; head -c 5000 /dev/zero >M3/film/a.ts
                printf '#EXTM3U\\n#EXTINF:2,\\na.ts\\n#EXT-X-ENDLIST\\n' >M3/film/index.m3u8
                "$0" view hls M3/film M1 -q 2>/dev/null
                if "$0" unmount M3; then exit 1; fi
                "$0" unmount --all
                """
            let result = try account.run(
                ["sh", "-c", script, account.binary], directory: place.path, timeout: .seconds(120)
            ).succeeded()
            for _ in 1...3 { Products.countMount() }
            #expect(
                result.errors == "vaultfs: \(lowest) is in use by mounts: first unmount \(view), \(inner), or --force\n"
            )
            #expect(result.output == [view, inner, lowest].map { "\($0): unmounted\n" }.joined())
        }

        /// Replaces what differs from run to run: times, rates, the recovery key and the temporary directory.
        private static func withoutChances(_ text: String, _ directory: String) -> String {
            text.replacingOccurrences(of: directory, with: "~")
                .replacing(/20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ/, with: "TIME")
                .replacing(/[0-9.]+ ([KMG]i)?B\/s/, with: "RATE")
                .replacing(/([0-9a-f]{8}-){8}[0-9a-f]{8}/, with: "KEY")
        }
    }
}
