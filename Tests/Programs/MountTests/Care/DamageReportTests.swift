import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The log, the events and the status of a mount with damage found by programs.
    @Suite struct DamageReports {
        /// A vault with damage, its mount in the foreground, and `events`.
        private final class Place {
            let vault: VaultUnderTest
            let daemon: RunningProcess
            let events: RunningProcess

            /// - Parameter damage: damages the vault with `dir/diary` (11 chunks) and `other`.
            init(_ damage: (VaultUnderTest) throws -> Void) throws {
                vault = try VaultUnderTest(arguments: ["--chunk-size", "4096"]).mounted()
                let script = "cd $1; mkdir dir empty; head -c 41083 /dev/urandom >dir/diary; echo x >other"
                try vault.account.run(["sh", "-ec", script, "sh", vault.mountpoint]).succeeded()
                try vault.unmount()
                try damage(vault)
                daemon = try vault.start(["mount", "-f", vault.vault, vault.mountpoint, "--passfile", vault.passfile])
                try poll("the mount") { [vault] in
                    try vault.isMounted() && vault.vaultfs(["status", vault.mountpoint]).output.contains("mountpoint")
                }
                Products.countMount()
                events = try vault.start(["events", vault.mountpoint, "--json"])
                try poll("the first event") { [events] in events.output.contains("\"state\"") }
            }

            deinit {
                events.kill(SIGKILL)
                daemon.kill(SIGKILL)
            }

            func end() throws {
                try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
                #expect(daemon.wait(timeout: .seconds(20)) == 0)
            }

            /// The log's lines about damage.
            var logged: [String] {
                daemon.errors.split(separator: "\n").compactMap { line in
                    line.range(of: "damaged: ").map { String(line[$0.lowerBound...]) }
                }
            }

            var errors: [[String: Any]] {
                events.output.split(separator: "\n").compactMap {
                    try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
                }.filter { $0["event"] as? String == "integrity-error" }
            }

            func problems() throws -> [String] { try vault.status()["problems"] as? [String] ?? [] }
        }

        @Test("a damaged file is named, with its chunk, once a minute, however often it is read")
        func chunk() throws {
            let place = try Place { vault in
                for chunk in ["2", "7"] { try vault.tamper(["flip_record", "dir/diary", chunk, "16"]) }
            }
            let path = "\(place.vault.mountpoint)/dir/diary"
            let read =
                "for i in $(seq 20); do ! dd if=$1 of=/dev/null bs=4096 skip=2 count=1 && ! cat $1 >/dev/null; done"
            try place.vault.account.run(["sh", "-ec", read, "sh", path]).succeeded()
            let line = "damaged: dir/diary: chunk 2: its data is damaged"
            #expect(place.logged == [line])
            #expect(try place.problems() == [line])
            try poll("the event") { !place.errors.isEmpty }
            let event = try #require(place.errors.first)
            #expect(place.errors.count == 1)
            #expect(event["path"] as? String == "dir/diary")
            #expect(event["reason"] as? String == "chunk 2: its data is damaged")
            let stored = try #require(event["encryptedPath"] as? String)
            #expect(FileManager.default.fileExists(atPath: "\(place.vault.vault)/\(stored)"))
            // A lock must hide the name.
            try place.vault.vaultfs(["lock", place.vault.mountpoint]).succeeded()
            #expect(try place.problems() == ["damaged: encrypted path \(stored): chunk 2: its data is damaged"])
            try place.end()
        }

        @Test("an entry whose name is not known has its encrypted path; another program's file is no damage")
        func name() throws {
            let place = try Place { vault in
                try vault.tamper(["move", "dir/diary", "empty"])
                try vault.account.run(["touch", "\(vault.vault)/.DS_Store", "\(vault.vault)/note.conflict"]).succeeded()
            }
            for _ in 0..<3 {
                try place.vault.account.run(["ls", "-R", place.vault.mountpoint]).succeeded()
            }
            #expect(place.logged.count == 1)
            let line = try #require(place.logged.first)
            #expect(line.hasPrefix("damaged: encrypted path "))
            #expect(line.hasSuffix(": its name is damaged, or of another directory"))
            #expect(try place.problems() == [line])
            let verify = ["verify", place.vault.vault, "--passfile", place.vault.passfile]
            #expect(try place.vault.vaultfs(verify).exitCode == Failure.damageFound.rawValue)
            try place.end()
        }

        @Test("a directory and a header")
        func openings() throws {
            let place = try Place { vault in
                try vault.tamper(["directory_record", "dir", "remove"])
                try vault.tamper(["flip_header", "other", "40"])
            }
            let script = "cd $1; ! ls dir; ! cat other"
            try place.vault.account.run(["sh", "-ec", script, "sh", place.vault.mountpoint]).succeeded()
            #expect(place.logged.count == 2)
            #expect(place.logged.first == "damaged: dir: vaultfs.dir: missing")
            #expect(place.logged.last?.hasPrefix("damaged: other: header: ") == true)
            try place.end()
        }
    }
}
