import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The state after a power cut with a new name on disk, but not the header or record of its object.
    @Suite struct UncleanEnds {
        private static let note = "1 00000000-0000-0000-0000-000000000000 4711 here 1 1\n"

        /// Makes a vault with a database in WAL mode, as after a power cut.
        private func cut(note: String = note) throws -> VaultUnderTest {
            let vault = try VaultUnderTest().mounted()
            // The script copies the database before its close, with its -wal and -shm.
            let script = """
                set -e; cd \(vault.mountpoint); mkdir profile profile/new
                sqlite3 profile/db 'PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1);' \
                    '.shell cp profile/db profile/db-wal profile/db-shm .' >/dev/null
                for file in db db-wal db-shm; do mv $file profile/$file; done
                """
            try vault.account.run(["bash", "-c", script]).succeeded()
            try vault.unmount()
            try vault.tamper(["cut", "profile/db-shm", "0"])
            try vault.tamper(["directory_record", "profile/new", "remove"])
            try Data(note.utf8).write(to: URL(fileURLWithPath: "\(vault.vault)/vaultfs.lock"))
            return vault
        }

        private func rows(_ vault: VaultUnderTest) throws -> CommandResult {
            try vault.account.run(["sqlite3", "\(vault.mountpoint)/profile/db", "SELECT count(*) FROM t"])
        }

        @Test("a database whose -shm has no header opens with its rows, and verify notes it only before")
        func database() throws {
            let vault = try cut()
            let before = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(before.output.contains("incomplete: profile/db-shm: no header"), "\(before)")
            #expect(before.output.contains("incomplete: profile/new: vaultfs.dir"), "\(before)")
            try vault.mount()
            #expect(try rows(vault).succeeded().output == "1\n")
            try vault.account.run(["touch", "\(vault.mountpoint)/profile/new/file"]).succeeded()
            try poll("the walk") {
                let statistics = try #require(try vault.status()["statistics"] as? [String: Any])
                return statistics["isCompleting"] as? Bool == false && statistics["completedObjects"] as? Int == 2
            }
            try vault.unmount()
            #expect(try String(contentsOfFile: "\(vault.vault)/vaultfs.lock", encoding: .utf8) == "\n")
            let after = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(after.exitCode == 0 && !after.output.contains("incomplete"), "\(after)")
            #expect(try vault.read().exitCode == 0)
        }

        @Test("incomplete objects stay errors after a clean end and on a read-only mount", arguments: [true, false])
        func refused(isClean: Bool) throws {
            let vault = try cut(note: isClean ? "\n" : Self.note)
            try vault.mount(isClean ? [] : ["-o", "ro"])
            #expect(
                try vault.account.run(["cat", "\(vault.mountpoint)/profile/db-shm"]).errors.contains("Input/output"))
            #expect(try vault.account.run(["ls", "\(vault.mountpoint)/profile/new"]).errors.contains("Input/output"))
            try vault.unmount()
            let verify = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(verify.exitCode == (isClean ? Failure.damageFound.rawValue : 0), "\(verify)")
        }

        @Test("an import leaves the end unclean, and verify --repair makes it clean")
        func repaired() throws {
            let vault = try cut()
            try Data("x".utf8).write(to: URL(fileURLWithPath: "\(vault.plain)/file"))
            try vault.vaultfs(["import", "\(vault.plain)/file", vault.vault, "--passfile", vault.passfile]).succeeded()
            let lock = "\(vault.vault)/vaultfs.lock"
            #expect(try String(contentsOfFile: lock, encoding: .utf8) == "incomplete\n")
            let repair = try vault.vaultfs(["verify", vault.vault, "--repair", "--yes", "--passfile", vault.passfile])
                .succeeded()
            #expect(repair.output.contains("repair: profile/db-shm: complete it as an empty one"), "\(repair)")
            #expect(try String(contentsOfFile: lock, encoding: .utf8) == "\n")
            try vault.mount()
            #expect(try rows(vault).succeeded().output == "1\n")
        }
    }
}
