import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// Objects at the destination that `import` and `export` must not change, and the objects they leave.
@Suite(.timeLimit(.minutes(60))) struct DestinationTests {
    /// cap_net_raw+ep (linux/capability.h, struct vfs_cap_data).
    private static let capability = "0x0100000200200000000000000000000000000000"

    private let place: TransferPlace

    init() throws {
        place = try TransferPlace()
        try shell("mkdir tree")
    }

    /// Runs a script in the directory of the trees.
    @discardableResult
    private func shell(_ script: String) throws -> String {
        try Command(["env", "-C", place.directory.path, "sh", "-ec", script]).run().succeeded().output
    }

    private func expectRefusal(
        _ result: CommandResult, _ name: String, sourceLocation: SourceLocation = #_sourceLocation
    ) {
        #expect(result.exitCode == FailureCode.incomplete.rawValue, "\(result)", sourceLocation: sourceLocation)
        #expect(
            result.errors.contains("\(name): something else is there already: --overwrite replaces files"), "\(result)",
            sourceLocation: sourceLocation)
    }

    @Test("set-id bits, capabilities and devices do not come out of a vault unless that is asked for")
    func setIdBitsAndDevices() throws {
        try shell(
            "printf x >tree/setuid; cp tree/setuid tree/setgid; cp tree/setuid tree/plain; mkdir tree/inherits; mkfifo tree/fifo"
        )
        try shell("chmod 4755 tree/setuid; chmod 2755 tree/setgid tree/inherits; chmod 1644 tree/plain")
        var message = "could not keep 2 modes"
        if Products.isRoot {
            try shell(
                "printf x >tree/able; chmod 755 tree/able; setfattr -n security.capability -v \(Self.capability) tree/able; mknod tree/null c 1 3; ln tree/null tree/too"
            )
            message += ", 1 set of attributes, 2 devices"
        }
        try place.importing("tree", options: ["--verify"]).run().succeeded()
        let result = try place.exporting(to: "out", options: ["--verify", "--json"], dropsSpecial: true).run()
        #expect(result.exitCode == FailureCode.notKept.rawValue)
        #expect(result.errors.hasSuffix(": \(message)\n"), "\(result)")
        let kept = try result.fields()["notKept"] as? [String: Int]
        #expect(kept?["modes"] == 2 && kept?["devices"] == (Products.isRoot ? 2 : 0))
        let modes = "cd out; stat -c '%a %n' fifo inherits plain setgid setuid"
        #expect(try shell(modes) == "644 fifo\n2755 inherits\n1644 plain\n755 setgid\n755 setuid\n")
        let able = Products.isRoot ? "able\n" : ""
        #expect(
            try shell("cd out; ls; getfattr -m security.capability *") == able
                + "fifo\ninherits\nplain\nsetgid\nsetuid\n")
        try place.exporting(to: "all").run().succeeded()
        try place.expectSame("tree", "all")
        // A single file must be treated the same.
        let one = try place.exporting(":setuid", to: "one", dropsSpecial: true).run()
        #expect(one.exitCode == FailureCode.notKept.rawValue)
        #expect(try shell("stat -c %a one") == "755\n")
    }

    @Test("a destination that is there keeps its own, directories in it get the source's, a new one as well")
    func destinationThatIsThereKeeps() throws {
        try shell("mkdir tree/sub out out/sub; printf x >tree/sub/file; setfattr -n user.tree -v 1 tree tree/sub")
        try shell(
            "setfattr -n user.own -v 1 out; setfattr -n user.own -v 1 out/sub; chmod 701 tree tree/sub; chmod 750 out out/sub"
        )
        try shell("touch -d 2001-01-01 tree/sub tree")
        let look = "stat -c '%a %U %n' out; getfattr -d --absolute-names out"
        let before = try shell(look)
        let vault = try Command(["stat", "-c", "%a %u", place.vault.vault]).run().succeeded().output
        try place.importing("tree").run().succeeded()
        #expect(try Command(["stat", "-c", "%a %u", place.vault.vault]).run().succeeded().output == vault)
        try place.exporting(to: "out").run().succeeded()
        #expect(try shell(look) == before)
        try place.expectSame("tree", "out")
        try place.importing("tree", to: ":new").run().succeeded()
        try place.exporting(":new", to: "made").run().succeeded()
        try place.expectSame("tree", "made", withRoots: true)
        #expect(try shell("ls -A made") == "sub\n")
    }

    @Test("a directory that an interrupted export has made gets the source's when the next one is done")
    func directoryThatInterruptedExport() throws {
        try shell("chmod 711 tree; printf x >tree/file; touch -d 2001-01-01 tree")
        try place.importing("tree", to: ":new").run().succeeded()
        // Simulates the state after a kill.
        try shell(
            "mkdir -m 700 out; touch out/.vaultfs-transfer-0000000000000000 out/.vaultfs-transfer-00000000000000a0")
        try place.exporting(":new", to: "out").run().succeeded()
        try place.expectSame("tree", "out", withRoots: true)
        #expect(try shell("ls -A out") == "file\n")
    }

    @Test("a different file with the same time is not replaced without a word")
    func differentFileWithSameTime() throws {
        try shell("ln -s one tree/link; printf one >tree/first; ln tree/first tree/second")
        try shell("touch -h -d 2001-01-01 tree/link tree/first")
        if Products.isRoot { try shell("mknod tree/device c 1 3; touch -d 2001-01-01 tree/device") }
        try place.importing("tree").run().succeeded()
        try shell("mkdir out; ln -s other out/link; printf two >out/second; touch -h -d 2001-01-01 out/link out/second")
        if Products.isRoot { try shell("mknod out/device c 1 5; touch -d 2001-01-01 out/device") }
        try shell("cp -a out before")
        let refused = try place.exporting(to: "out").run()
        expectRefusal(refused, "link")
        expectRefusal(refused, "second")
        if Products.isRoot { expectRefusal(refused, "device") }
        for name in ["link", "second"] + (Products.isRoot ? ["device"] : []) {
            #expect(try shell("rsync -ain --checksum before/\(name) out/").isEmpty, "\(name)")
        }
        try place.exporting(to: "out", options: ["--overwrite"]).run().succeeded()
        try place.expectSame("tree", "out")
    }

    @Test("a whiteout (device 0:0) crosses both ways, without rights of others")
    func whiteout() throws {
        try shell("mknod tree/whiteout c 0 0; ln tree/whiteout tree/second; touch -h -d 2001-01-01 tree/whiteout")
        try place.importing("tree").run().succeeded()
        try place.exporting(to: "out", dropsSpecial: true).run().succeeded()
        try place.expectSame("tree", "out")
        #expect(try shell("stat -c '%F %t:%T %h' out/whiteout") == "character special file 0:0 2\n")
    }

    @Test("two names of which an earlier run made a file each become one")
    func twoNamesOfWhichEarlier() throws {
        try shell("printf one >tree/first; ln -s one tree/link; mkfifo tree/fifo; mkdir out")
        try shell("for name in first link fifo; do ln tree/$name tree/$name.second; done")
        try place.importing("tree").run().succeeded()
        try shell("for name in first link fifo; do for end in '' .second; do cp -a tree/$name$end out/; done; done")
        try place.exporting(to: "out").run().succeeded()
        try place.expectSame("tree", "out")
    }

    @Test("a source that is called like something unfinished is an error, not left out without a word")
    func sourceThatIsCalledLike() throws {
        let name = ".vaultfs-transfer-0123456789abcdef"
        try shell("printf x >tree/file; printf x >tree/\(name); mkdir tree/.vaultfs-transfer-0000000000000000")
        let result = try place.importing("tree", options: ["--json"]).run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue)
        #expect(result.errors.contains("\(name): not copied: this is the name of an unfinished import or export"))
        #expect(try result.fields()["failed"] as? Int == 2)
    }
}
