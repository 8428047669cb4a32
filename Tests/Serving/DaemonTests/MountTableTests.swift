import Daemon
import Testing

@Suite struct MountTableTests {
    private static let line =
        "68 27 0:42 / /mnt/a\\040b rw,nosuid shared:1 master:2 - fuse.vaultfs /v\\134\\054x rw,user_id=1000\n"

    @Test("octal escapes and optional fields")
    func octalEscapesAndOptionalFields() throws {
        let table = MountTable(parsing: Array(Self.line.utf8))
        let entry = try #require(table.entry(at: Array("/mnt/a b".utf8)))
        #expect(entry.isOurs)
        #expect(entry.source == Array("/v\\,x".utf8))
        #expect(entry.userID == 1000)
    }

    @Test("the mount on top is the one")
    func mountOnTop() {
        let text = "1 0 0:1 / /m rw - ext4 /dev/a rw\n2 1 0:2 / /m rw - fuse.vaultfs v rw\n"
        let table = MountTable(parsing: Array(text.utf8))
        #expect(table.entries.count == 2)
        #expect(table.entry(at: Array("/m".utf8))?.type == "fuse.vaultfs")
        #expect(table.entry(at: Array("/".utf8)) == nil)
    }

    @Test("the mounts that keep another one in use are those below it, and ours of a source in it")
    func above() {
        let text = """
            1 0 0:1 / / rw - ext4 /dev/a rw
            2 1 0:2 / /m rw - fuse.vaultfs /v rw
            3 2 0:3 / /m/below rw - tmpfs none rw
            4 1 0:4 / /film rw - fuse.vaultfs /m/film rw
            5 1 0:5 / /mother rw - fuse.vaultfs /mother/film rw
            6 1 0:6 / /other rw - fuse.sshfs /m/film rw
            """
        let above = MountTable(parsing: Array(text.utf8)).mounts(above: Array("/m".utf8))
        #expect(above.map { String(decoding: $0.mountpoint, as: UTF8.self) } == ["/m/below", "/film"])
    }

    @Test("a message about another user's mount has the user's name")
    func owner() throws {
        func refusal(_ owner: UInt32, for user: UInt32) throws -> String? {
            let line = "1 0 0:1 / /m rw - fuse.vaultfs /v rw,user_id=\(owner)\n"
            let entry = try #require(MountTable(parsing: Array(line.utf8)).entries.first)
            return MountOwner(of: entry, for: user)?.refusal(to: "lock it")
        }
        #expect(try refusal(65534, for: 1000) == "mounted by nobody: only nobody or root can lock it")
        #expect(try refusal(0, for: 1000) == "mounted by root: only root can lock it")
        let unnamed = try refusal(4_000_000_000, for: 1000)
        #expect(unnamed == "mounted by user 4000000000: only user 4000000000 or root can lock it")
        #expect(try refusal(1000, for: 1000) == nil && refusal(1000, for: 0) == nil)
    }

    @Test(
        "only an NFS mount with soft or softerr is a soft one",
        arguments: [
            ("nfs4", "rw,vers=4.2,soft,timeo=20", true), ("nfs", "rw,softerr", true),
            ("nfs4", "rw,hard,softreval", false),
            ("ext4", "rw,soft", false),
        ])
    func soft(type: String, options: String, isSoft: Bool) throws {
        let table = MountTable(parsing: Array("1 0 0:42 / /m rw - \(type) server:/x \(options)\n".utf8))
        let device = try #require(table.entries.first?.device)
        #expect(table.isSoft(device) == isSoft && !table.isSoft(device + 1))
    }

    @Test("bytes that are no UTF-8")
    func bytesThatAreNoUtf() {
        let line = Array("1 0 0:1 / /m".utf8) + [0xFF] + Array(" rw - fuse.vaultfs v rw".utf8)
        #expect(MountTable(parsing: line).entry(at: Array("/m".utf8) + [0xFF]) != nil)
    }

    @Test("every truncation is survived")
    func everyTruncationIsSurvived() {
        let bytes = Array(Self.line.utf8)
        for count in bytes.indices { _ = MountTable(parsing: Array(bytes[..<count])) }
    }
}
