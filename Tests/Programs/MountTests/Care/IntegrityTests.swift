import Foundation
import TestSupport
import Testing

/// A change made on disk, and the tree as the mount then shows it: look.py's lines for the affected entries. An empty
/// list stands for a missing entry. All other entries must be unchanged.
struct Tampering: CustomTestStringConvertible, Sendable {
    let change: [String]
    let shows: [String: [String]]

    init(_ change: String, _ shows: [String: [String]]) {
        self.change = change.split(separator: " ").map(String.init)
        self.shows = shows
    }

    /// Expects reads of `path`, of `size` bytes, to fail in `ranges` only.
    init(_ change: String, reading path: String, of size: Int, failsIn ranges: String) {
        self.init(change, [path: ["file\t\(size)\t\(ranges)\t\(path)"]])
    }

    var testDescription: String { change.joined(separator: " ") }

    /// `file` and `other` are 41083 bytes (10 chunks and 123 bytes), `whole` two chunks.
    static let inFiles: [Tampering] = [
        .init("flip_record file 2 16", reading: "file", of: 41083, failsIn: "EIO 8192-12287"),
        .init("flip_record file 0 0", reading: "file", of: 41083, failsIn: "EIO 0-4095"),
        .init("flip_record file 10 -1", reading: "file", of: 41083, failsIn: "EIO 40960-41082"),
        .init("flip_record file 9 4111", reading: "file", of: 41083, failsIn: "EIO 36864-40959"),
        .init("swap file 1 3", reading: "file", of: 41083, failsIn: "EIO 4096-8191 EIO 12288-16383"),
        .init("take file 2 file 1", reading: "file", of: 41083, failsIn: "EIO 8192-12287"),
        .init("take file 4 other 4", reading: "file", of: 41083, failsIn: "EIO 16384-20479"),
        .init("zero file 5", reading: "file", of: 41083, failsIn: "EIO 20480-24575"),
        .init("zero file 10", reading: "file", of: 41083, failsIn: "EIO 40960-41082"),
        .init("cut_chunks file 3", reading: "file", of: 12288, failsIn: "open: EIO"),
        .init("cut file -1", reading: "file", of: 41082, failsIn: "open: EIO"),
        .init("cut file 128", reading: "file", of: 0, failsIn: "open: EIO"),
        .init("cut file 127", reading: "file", of: 0, failsIn: "open: EIO"),
        .init("cut file 0", reading: "file", of: 0, failsIn: "open: EIO"),
        .init("extend whole 1", reading: "whole", of: 12288, failsIn: "EIO 8192-12287"),
        .init("extend file 2", reading: "file", of: 49275, failsIn: "EIO 41083-49274"),
        .init("set_class file 2", reading: "file", of: 41083, failsIn: "open: EIO"),
        .init("set_class file 9", reading: "file", of: 41083, failsIn: "open: EIO"),
    ]

    /// Changes of every field of the header.
    static let inHeaders = [0, 3, 4, 5, 6, 7, 8, 15, 16, 40, 63, 64, 95, 96, 103, 104, 105, 111, 112, 127].map {
        Tampering("flip_header file \($0)", reading: "file", of: 41083, failsIn: "open: EIO")
    }

    static let inNames: [Tampering] = [
        .init("move dir/inner dir2", ["dir/inner": []]),
        .init("copy_name file dir", [:]),
        .init("respell dir/inner", [:]),
        .init("rename_flip dir/inner", ["dir/inner": []]),
        .init("sidecar \(long) remove", [long: []]),
        .init("sidecar \(long) flip", [long: []]),
        .init("move \(long) dir2", [long: []]),
        .init("directory_record dir from dir2", ["dir/inner": []]),
        .init("directory_record dir remove", ["dir/inner": [], "dir": ["dir\t0\t-\tdir", "list\t-\tEIO\tdir"]]),
        .init("directory_record dir cut 63", ["dir/inner": [], "dir": ["dir\t0\t-\tdir", "list\t-\tEIO\tdir"]]),
        .init("directory_record dir flip 5", ["dir/inner": [], "dir": ["dir\t0\t-\tdir", "list\t-\tEIO\tdir"]]),
        .init("directory_record dir flip 40", ["dir/inner": [], "dir": ["dir\t0\t-\tdir", "list\t-\tEIO\tdir"]]),
        .init("set_class dir 2", ["dir/inner": [], "dir": ["dir\t0\t-\tdir", "list\t-\tEIO\tdir"]]),
        .init("link link flip", ["link": ["link\t-\tEIO\tlink"]]),
        .init("link link class", ["link": ["link\t-\tEIO\tlink"]]),
        .init("link link plain", ["link": ["link\t-\tEIO\tlink"]]),
    ]

    static let long = String(repeating: "L", count: 220)
}

extension PlainMountTests {
    /// The format's promises, each broken on disk.
    @Suite struct Integrity {
        /// The result of `made()`, once for all tests. As an archive it leaves nothing on disk when the tests end.
        private static let original = Result { () throws in
            let (vault, listing) = try made(chunkSize: 4096)
            return (archive: try vault.archive(), listing: listing)
        }

        /// Returns an unmounted vault with a tree in it, and look.py's output for the tree.
        static func prepared() throws -> (VaultUnderTest, listing: String) {
            let (archive, listing) = try original.get()
            return (try VaultUnderTest(from: archive), listing)
        }

        static func made(chunkSize: Int) throws -> (VaultUnderTest, listing: String) {
            let vault = try VaultUnderTest(arguments: ["--chunk-size", "\(chunkSize)"]).mounted()
            let script = """
                set -e; cd \(vault.mountpoint); mkdir dir dir2
                head -c 41083 /dev/urandom >file; head -c 41083 /dev/urandom >other; head -c 8192 /dev/urandom >whole
                head -c 5000 /dev/urandom >dir/inner; echo x >dir2/x; ln -s dir/inner link
                echo long >\(Tampering.long); echo y >attributed; setfattr -n user.a -v first attributed
                """
            try vault.account.run(["bash", "-c", script]).succeeded()
            let listing = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded().output
            try vault.unmount()
            return (vault, listing)
        }

        /// Returns the listing with some entries' lines replaced.
        static func expected(_ listing: String, _ shows: [String: [String]]) -> [String] {
            let kept = listing.split(separator: "\n").filter { line in
                shows[String(line.split(separator: "\t").last ?? "")] == nil
            }
            return (kept.map(String.init) + shows.values.flatMap { $0 }).sorted()
        }

        @Test("broken on disk", arguments: Tampering.inFiles + Tampering.inHeaders + Tampering.inNames)
        func broken(tampering: Tampering) throws {
            let (vault, listing) = try Self.prepared()
            try vault.tamper(tampering.change)
            try vault.mount()
            let found = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded().output
            let wanted = Self.expected(listing, tampering.shows)
            expectSameLines(
                found.split(separator: "\n").map(String.init).sorted().joined(separator: "\n"),
                as: wanted.joined(separator: "\n"), tampering.testDescription)
            try vault.unmount()
            let verify = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(verify.exitCode == Failure.damageFound.rawValue, "\(verify)")
            #expect(try vault.read().exitCode == Failure.damageFound.rawValue)
        }

        @Test("chunks of 64 KiB fail as a whole")
        func largeChunks() throws {
            let (vault, _) = try Self.made(chunkSize: 65536)
            try vault.tamper(["flip_record", "file", "0", "100"])
            try vault.mount()
            let found = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded().output
            #expect(found.contains("file\t41083\tEIO 0-41082\tfile\n"))
        }

        @Test("an attribute's value changed")
        func attribute() throws {
            let (vault, _) = try Self.prepared()
            try vault.tamper(["attribute", "attributed", "flip"])
            try vault.mount()
            let read = try vault.account.run(["getfattr", "-n", "user.a", "\(vault.mountpoint)/attributed"])
            #expect(read.errors.contains("Input/output error"))
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/attributed"]).output == "y\n")
        }

        @Test("entries that do not authenticate are never deleted: rmdir fails, because the directory is not empty")
        func hiddenNamesStay() throws {
            let (vault, _) = try Self.prepared()
            try vault.tamper(["directory_record", "dir", "from", "dir2"])
            try vault.mount()
            let removal = try vault.account.run(["rmdir", "\(vault.mountpoint)/dir"])
            #expect(removal.errors.contains("Directory not empty"))
        }

        @Test("a cut file can be truncated to nothing, unlinked, replaced")
        func cutFile() throws {
            let (vault, _) = try Self.prepared()
            for (path, size) in [("file", "20000"), ("other", "100"), ("whole", "0")] {
                try vault.tamper(["cut", path, size])
            }
            try vault.mount()
            let script = """
                set -e; cd \(vault.mountpoint); ! cat file; ! cat other; ! cat whole; ! (echo more >>file)
                echo new >file; [ "$(cat file)" = new ]; : >other; echo again >>other; [ "$(cat other)" = again ]; rm whole
                """
            try vault.account.run(["bash", "-c", script]).succeeded()
            try vault.unmount()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("an extended sealed file is cut back when it is opened for writing")
        func extendedFile() throws {
            let (vault, listing) = try Self.prepared()
            try vault.tamper(["extend", "whole", "3"])
            try vault.mount()
            try vault.account.run(["sh", "-c", ": >>\(vault.mountpoint)/whole"]).succeeded()
            let found = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: listing, "after cutting back")
            try vault.unmount()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("no program sees the old size of a file that was cut back, or appends after it")
        func sizeAfterCut() throws {
            let (vault, _) = try Self.prepared()
            for name in ["file", "whole", "other", "dir/inner"] { try vault.tamper(["extend", name, "20"]) }
            try vault.mount()
            let arguments = [vault.mountpoint, "file=41083", "whole=8192", "--", "other=41083", "dir/inner=5000"]
            let found = try vault.account.program("store/cut_at_open.py", arguments).succeeded()
            #expect(found.output == "")
            try vault.unmount()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("damage made while mounted is seen once the caches are dropped")
        func damagedMeanwhile() throws {
            let (vault, _) = try Self.prepared()
            try vault.mount(["--cache-size", "1048576"])
            try vault.account.run(["cat", "\(vault.mountpoint)/file"]).succeeded()
            try vault.tamper(["flip_record", "file", "7", "500"])
            try vault.unmount()
            try vault.mount()
            let found = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded().output
            #expect(found.contains("file\t41083\tEIO 28672-32767\tfile\n"))
        }
    }
}
