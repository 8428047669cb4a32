import Foundation
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import Transfer
import VaultFormat
import VaultStore

@testable import vaultfs

/// `vaultfs import` and `vaultfs export` of vaults, through the binary.
@Suite(.timeLimit(.minutes(60))) struct TransferTests {
    private let place: TransferPlace

    init() throws {
        place = try TransferPlace()
    }

    @Test("a tree comes out as it went in, and a second run has nothing to do")
    func treeComesOutAsItWent() throws {
        try place.makeTree(files: 150)
        let first = try place.importing("tree", options: ["--verify", "--json"]).run().succeeded().fields()
        #expect(first["failed"] as? Int == 0)
        #expect(first["different"] as? Int == 0)
        let files = try #require(first["files"] as? Int)
        #expect(files >= 150)
        #expect(try place.damage() == [])
        let again = try place.importing("tree", options: ["--json"]).run().succeeded().fields()
        #expect(again["files"] as? Int == 0)
        #expect(again["bytes"] as? Int == 0)
        #expect(try #require(again["present"] as? Int) == (first["verified"] as? Int))
        try place.exporting(to: "out", options: ["--verify"]).run().succeeded()
        try place.expectSame("tree", "out")
        let twice = try place.exporting(to: "out", options: ["--json"]).run().succeeded().fields()
        #expect(twice["files"] as? Int == 0)
        try place.expectSame("tree", "out")
    }

    @Test("holes stay holes on the way in and on the way out")
    func holesStayHolesOnWay() throws {
        try place.makeTree()
        try place.importing("tree").run().succeeded()
        try place.exporting(to: "out").run().succeeded()
        var status = stat()
        #expect(stat(place.path("out/holes"), &status) == 0 && status.st_size == 64 << 20)
        #expect(status.st_blocks * 512 < 4 << 20)
        #expect(stat(place.path("out/only a hole"), &status) == 0 && status.st_size == 8 << 20 + 1)
        // The end is a partial chunk of data, whose record may begin in the block before.
        #expect(status.st_blocks * 512 <= 12288)
        let size = try Command(["du", "-s", "-k", place.vault.vault]).run().succeeded().output
        #expect(try #require(Int(size.split(separator: "\t").first ?? "")) < 12 << 10)
    }

    @Test("a part of a vault, and a single file, go where cp would put them")
    func partOfVault() throws {
        try place.makeTree()
        try place.importing("tree/links", to: ":new").run().succeeded()
        try place.importing("tree/size 4097", to: ":new").run().succeeded()
        try place.importing("tree/size 4097", to: ":new/other name").run().succeeded()
        try place.exporting(":/new/size 4097", to: "file").run().succeeded()
        try Command(["mkdir", place.path("into")]).run().succeeded()
        try place.exporting(":new/other name", to: "into").run().succeeded()
        for copy in ["file", "into/other name"] {
            #expect(try Command(["cmp", place.path("tree/size 4097"), place.path(copy)]).run().exitCode == 0)
        }
        try place.exporting(":new", to: "part").run().succeeded()
        let names = try FileManager.default.contentsOfDirectory(atPath: place.path("part"))
        #expect(Set(names).isSuperset(of: ["good", "dangling", "size 4097", "other name"]))
        let missing = try place.importing("tree", to: ":no/such/directory").run()
        #expect(missing.exitCode == FailureCode.failure.rawValue)
        let end = "there is no directory 'no': make it first, on a mount or with another import\n"
        #expect(missing.errors.hasSuffix(end), "\(missing)")
        // A path with a slash at its end must be a directory's.
        try place.importing("file", to: ":file").run().succeeded()
        for (destination, reason) in [("no/", "there is no directory 'no'"), ("file/", "'file' is not a directory")] {
            for run in [place.importing("file", to: ":" + destination), place.exporting(":file", to: destination)] {
                let result = try run.run()
                #expect(result.exitCode == FailureCode.failure.rawValue)
                #expect(result.errors.contains(reason), "\(result)")
            }
        }
    }

    @Test("a file that is there and differs is kept, unless --overwrite is given")
    func fileThatIsThere() throws {
        try Command(["mkdir", place.path("tree")]).run().succeeded()
        try place.directory.write("tree/file", "old")
        try place.directory.write("tree/other", "other")
        try place.importing("tree").run().succeeded()
        try place.directory.write("tree/file", "newer")
        let refused = try place.importing("tree").run()
        #expect(refused.exitCode == FailureCode.incomplete.rawValue)
        #expect(refused.errors.contains("file: something else is there already: --overwrite replaces files"))
        try place.exporting(":file", to: "kept").run().succeeded()
        #expect(try String(contentsOfFile: place.path("kept"), encoding: .utf8) == "old")
        try place.importing("tree", options: ["--overwrite"]).run().succeeded()
        try place.exporting(to: "out").run().succeeded()
        try place.expectSame("tree", "out")
    }

    @Test("links in the source are copied, not followed, and what SOURCE itself leads to is")
    func linksInSourceAreCopied() throws {
        try place.makeTree("outside")
        try Command(["mkdir", place.path("tree")]).run().succeeded()
        try Command(["ln", "-s", place.path("outside"), place.path("tree/link")]).run().succeeded()
        try Command(["ln", "-s", "tree", place.path("name")]).run().succeeded()
        try place.importing("name").run().succeeded()
        try place.exporting(to: "out").run().succeeded()
        try place.expectSame("tree", "out")
    }

    @Test("a file that is written to meanwhile is an error of that file alone")
    func fileThatIsWritten() throws {
        try place.make("tree/changing", size: 32 << 20)
        try place.directory.write("tree/quiet", "quiet")
        let writer = try Command(["sh", "-c", "while :; do echo x >> \(place.path("tree/changing")); done"]).start()
        defer {
            writer.kill(SIGKILL)
            _ = writer.wait(timeout: .seconds(5))
        }
        var (result, target) = (try place.importing("tree", to: ":0").run(), ":0")
        // On a busy machine the writer may have been idle meanwhile, so try again.
        for number in 1..<10 where result.exitCode == 0 {
            target = ":\(number)"
            result = try place.importing("tree", to: target).run()
        }
        #expect(result.exitCode == FailureCode.incomplete.rawValue)
        #expect(result.errors.contains("changing: it was changed while it was read"), "\(result)")
        try place.exporting(target, to: "out").run().succeeded()
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path("out")) == ["quiet"])
    }

    @Test("--verify notices a byte that was changed on disk")
    func verifyNoticesByte() throws {
        try place.make("tree/large", size: 1_000_000)
        try place.make("tree/small", size: 1000)
        try place.importing("tree", options: ["--verify"]).run().succeeded()
        try place.flip(try place.backingFiles()[0], at: 500_000)
        // A file of the same size and time counts as the same, unless it is read.
        try place.importing("tree").run().succeeded()
        let result = try place.importing("tree", options: ["--verify", "--json"]).run()
        #expect(result.exitCode == FailureCode.damageFound.rawValue)
        #expect(result.errors.contains("large: what was written cannot be read: chunk 121: its data is damaged"))
        #expect(try result.fields()["different"] as? Int == 1)
    }

    /// Imports a file with holes, and then extends its sealed backing file as an attacker can.
    private func makeExtended() throws -> (length: Int, added: Int) {
        let script =
            "cd \(place.path("tree")); head -c 9000 /dev/urandom >sparse; truncate -s 3000000 sparse"
        try Command(["mkdir", place.path("tree")]).run().succeeded()
        try Command(["sh", "-c", script]).run().succeeded()
        try place.importing("tree").run().succeeded()
        let backing = try place.backingFiles()[0]
        var status = stat()
        try #require(stat(backing, &status) == 0)
        try #require(truncate(backing, status.st_size + 1_000_000) == 0)
        try Command(["touch", "-r", place.path("tree/sparse"), backing]).run().succeeded()
        return (3_000_000, 1_000_000)
    }

    @Test("an export of an extended sealed file with holes is an error, and leaves nothing")
    func exportOfExtendedSealedFile() throws {
        let (length, _) = try makeExtended()
        let result = try place.exporting(to: "out").run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue, "\(result)")
        #expect(result.errors.contains("sparse: it should be \(length) bytes long"), "\(result)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path("out")) == [])
        let damaged = try place.exporting(to: "out", options: ["--damaged"]).run()
        #expect(damaged.exitCode == FailureCode.damageFound.rawValue, "\(damaged)")
        #expect(damaged.errors.contains("sparse: damaged: bytes \(length)-"), "\(damaged)")
        let compared = try Command(["cmp", "-n", "\(length)", place.path("tree/sparse"), place.path("out/sparse")])
            .run()
        #expect(compared.exitCode == 0)
    }

    @Test("an import replaces a vault file that was extended to the size of its source")
    func importReplacesVaultFile() throws {
        _ = try makeExtended()
        // Give the source the size and time now shown by the vault's file.
        var status = stat()
        try #require(stat(try place.backingFiles()[0], &status) == 0)
        let shown = (Int(status.st_size) - 128) / 4128 * 4096 + max(0, (Int(status.st_size) - 128) % 4128 - 32)
        let script =
            "cd \(place.path("tree")); cp -a sparse time; truncate -s \(shown) sparse; touch -r time sparse; rm time"
        try Command(["sh", "-c", script]).run().succeeded()
        let again = try place.importing("tree", options: ["--json"]).run().succeeded().fields()
        #expect(again["files"] as? Int == 1 && again["present"] as? Int == 0, "\(again)")
        #expect(try place.damage() == [])
    }

    @Test("--verify removes a copy that differs from its source, and leaves other files")
    func verifyRemovesCopyThatDiffers() throws {
        for name in ["from", "to"] { try Command(["mkdir", place.path(name)]).run().succeeded() }
        for name in ["wrong", "right", "other"] { try place.make("from/\(name)", size: 5000) }
        try Command(["cp", "-a", place.path("from/other"), place.path("to/other")]).run().succeeded()
        try place.flip(place.path("to/other"), at: 3000)
        var status = stat()
        try #require(stat(place.path("to/other"), &status) == 0)
        var options = TransferOptions()
        // Wait until the clock for file times has advanced.
        try poll("a tick") {
            options.beginCopying()
            let since = try #require(options.copiedSince)
            return (since.tv_sec, since.tv_nsec) > (status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
        }
        func transfer() throws -> (TransferTotals, [String]) {
            let failed = Mutex<[String]>([])
            let (source, target) = try (opened(place.path("from")), opened(place.path("to")))
            let transfer = TreeTransfer(
                from: LocalTree<Workspace>(), to: LocalTree<Workspace>(), options,
                failed: { path, reason in
                    failed.withLock { $0.append(String(decoding: path, as: UTF8.self) + ": " + reason) }
                },
                damaged: { _, _, _ in }, isStopped: { false })
            try transfer.transferTree(
                source, into: target, isNew: false, [Workspace(layout: ChunkLayout(chunkSize: 4096))],
                whileWaiting: { _ in })
            return (transfer.totals, failed.withLock { $0.sorted() })
        }
        #expect(try transfer().0.files == 2)
        try place.flip(place.path("to/wrong"), at: 4000)
        options.isComparing = true
        let (totals, failed) = try transfer()
        #expect(totals.different == 2)
        #expect(failed.count == 2 && failed[0].hasPrefix("other: its content is not") && !failed[0].contains("removed"))
        #expect(failed.last?.hasSuffix("the copy was removed, run the same command again") == true, "\(failed)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path("to")).sorted() == ["other", "right"])
        options.isComparing = false
        #expect(try transfer().0.files == 1)
        #expect(try Command(["cmp", place.path("from/wrong"), place.path("to/wrong")]).run().exitCode == 0)
    }

    @Test("--verify notices what only has the size and time of its source")
    func verifyNoticesWhatOnly() throws {
        try Command(["mkdir", place.path("tree")]).run().succeeded()
        try place.directory.write("tree/file", "one")
        try place.importing("tree").run().succeeded()
        try place.exporting(to: "out").run().succeeded()
        let script = "cp -a tree/file time; echo -n two > tree/file; touch -r time tree/file"
        try Command(["env", "-C", place.directory.path, "sh", "-c", script]).run().succeeded()
        let result = try place.importing("tree", options: ["--verify"]).run()
        #expect(result.exitCode == FailureCode.damageFound.rawValue)
        #expect(
            result.errors.contains("file: its content is not that of the source, after byte 0"), "\(result)")
        let replaced = try place.importing("tree", options: ["--verify", "--overwrite", "--json"]).run().succeeded()
        #expect(try replaced.fields()["files"] as? Int == 1)
        let again = try place.importing("tree", options: ["--verify", "--overwrite", "--json"]).run().succeeded()
        #expect(try again.fields()["files"] as? Int == 0)
        try Command(["cp", "-a", place.path("time"), place.path("tree/file")]).run().succeeded()
        try place.importing("tree", options: ["--verify", "--overwrite"]).run().succeeded()
        try place.exporting(to: "out", options: ["--verify"]).run().succeeded()
    }

    @Test("the vault is not copied into itself")
    func vaultIsNotCopied() throws {
        let inside = try Command(
            [Products.binary, "import", place.vault.vault, place.vault.vault, "--passfile", place.vault.passfile]
        ).run()
        #expect(inside.exitCode == FailureCode.failure.rawValue)
        #expect(inside.errors.contains("is the vault or in it"))
        let around = try Command(
            [
                Products.binary, "import", (place.vault.vault as NSString).deletingLastPathComponent,
                place.vault.vault, "--passfile", place.vault.passfile,
            ]
        ).run()
        #expect(around.exitCode == FailureCode.incomplete.rawValue)
        #expect(around.errors.contains("vault: it is the vault or source itself, and left out"), "\(around)")
    }

    @Test(
        "a file whose size is not that of its content is an error, not an empty or longer file",
        arguments: ["/proc/version", "/sys/kernel/uevent_seqnum"])
    func wrongSize(source: String) throws {
        try FileManager.default.createSymbolicLink(atPath: place.path("link"), withDestinationPath: source)
        let result = try place.importing("link", to: ":copy").run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue && result.errors.contains("size"), "\(result)")
        #expect(try place.exporting(":copy", to: "copy").run().exitCode == FailureCode.failure.rawValue)
    }

    @Test(
        "options that do not go together are refused",
        arguments: [
            (["--damaged", "--verify"], "only one of --damaged, --verify can be given"),
            (["--iv-in-file"], "--iv-in-file is for views"),
            (["--view", "cbc", "--damaged"], "--damaged is for vaults, not for views"),
        ]
    )
    func optionsThatDoNotGo(options: [String], message: String) throws {
        let result = try place.exporting(to: "out", options: options).run()
        #expect(result.exitCode == FailureCode.usage.rawValue)
        #expect(result.errors.contains(message), "\(result)")
    }

    @Test("the bar tells how much is done, how fast, and how long it takes")
    func barTellsHowMuch() {
        var totals = TransferTotals()
        totals.files = 120
        totals.bytes = 512 << 20
        #expect(
            WorkProgress.parts(WorkProgress.Amount(totals, of: (files: 240, bytes: 1 << 30)), seconds: 4)
                == ["[##########          ]  50%", "4 s left", "120 of 240 files", "512.0 MiB", "128.0 MiB/s"])
        #expect(
            WorkProgress.parts(WorkProgress.Amount(totals, of: nil), seconds: 4)
                == ["120 files", "512.0 MiB", "128.0 MiB/s"]
        )
    }
}
