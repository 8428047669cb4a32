import Foundation
import TestSupport
import Testing

/// The memory of a vault's import, check, export and rekey, which must not grow with the number of files.
@Suite(.timeLimit(.minutes(60))) struct TransferMemoryTests {
    private static let few = 3000
    private static let many = 8000

    private let directory: TemporaryDirectory
    private let passfile: String

    init() throws {
        directory = try TemporaryDirectory(in: "/dev/shm")
        passfile = try directory.write("passfile", "correct horse")
        let script = """
            import os, sys
            for tree, count in (("few", int(sys.argv[1])), ("many", int(sys.argv[2]))):
                for number in range(count):
                    place = f"{tree}/{number // 200}/" + "/".join(str(depth) * 140 for depth in range(7))
                    if number % 200 == 0: os.makedirs(place)
                    os.close(os.open(f"{place}/{number:0140}", os.O_CREAT))
            """
        let make = ["env", "-C", directory.path, Products.python, "-c", script, "\(Self.few)", "\(Self.many)"]
        try Command(make).run().succeeded()
    }

    /// Returns the peak memory in KiB.
    private func peak(_ arguments: [String]) throws -> Int {
        let script = """
            import resource, subprocess, sys
            subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
            print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
            """
        let command = [Products.python, "-c", script, Products.binary] + arguments + ["--passfile", passfile]
        let output = try Command(command).run().succeeded().output
        return try #require(Int(output.trimmingCharacters(in: .whitespacesAndNewlines)))
    }

    /// Returns the peaks of the commands in order.
    private func peaks(_ tree: String) throws -> [Int] {
        let (source, vault) = (directory.appending(tree), directory.appending("vault-\(tree)"))
        _ = try peak(["init", vault, "--scrypt-logn", "10", "--no-recovery-key"])
        return try [
            ["import", source, vault], ["verify", vault], ["export", vault, source + "-again"],
            ["rekey", vault, "--yes"],
        ].map(peak)
    }

    @Test("more files take no more")
    func moreFilesTakeNoMore() throws {
        let (few, many) = (try peaks("few"), try peaks("many"))
        // The paths have 1.1 KiB. Kept for each file they would take 5.4 MiB, and more as backing paths in a vault. By
        // then, the caches with a bounded number of files are full except for 1.6 MiB.
        for (few, many) in zip(few, many) { #expect(many - few < 4096, "KiB: \(few), \(many)") }
    }
}
