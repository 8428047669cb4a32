import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Files with holes, changed on disk and read by programs that skip holes.
    @Suite struct HoleSeeking {
        /// Commands that copy the first file to the second, and succeed only if they have read all of it.
        private static let programs = [
            "cat \"$1\" >\"$2\"", "cp --sparse=auto \"$1\" \"$2\"", "cp --sparse=always --reflink=never \"$1\" \"$2\"",
            "tar -S -cf - -C \"${1%/*}\" \"${1##*/}\" | tar -xOf - >\"$2\"", "rsync -S --inplace \"$1\" \"$2\"",
            "dd if=\"$1\" of=\"$2\" bs=64k conv=sparse",
        ]

        /// Changes of a sealed file. It has data and a hole, and if its name says so, data after the hole.
        private static let changes = [
            ("hole1", ["grow", "1000000"]), ("hole2", ["grow", "100"]), ("hole3", ["cut", "-1000"]),
            ("data1", ["grow", "1000000"]), ("data2", ["grow", "100"]),
        ]

        @Test(
            "programs that skip holes get an error for a changed sealed file, and the right bytes of other files",
            arguments: [4096, 65536])
        func copies(chunkSize: Int) throws {
            let vault = try VaultUnderTest(arguments: ["--chunk-size", "\(chunkSize)"]).mounted()
            let script = """
                set -e; cd \(vault.mountpoint)
                for name in hole data; do for number in 0 1 2 3; do
                    head -c 100000 /dev/urandom >$name$number; truncate -s 3000000 $name$number
                    case $name in data) head -c 5000 /dev/urandom >>data$number;; esac
                done; done; cp --sparse=always hole0 data0 \(vault.plain)
                """
            try vault.account.run(["bash", "-c", script]).succeeded()
            try vault.unmount()
            for (name, change) in Self.changes { try vault.tamper([change[0], name, change[1]]) }
            try vault.mount()
            for (number, program) in Self.programs.enumerated() {
                func run(_ name: String) throws -> CommandResult {
                    try vault.account.run(
                        [
                            "bash", "-o", "pipefail", "-c", program, "copy", "\(vault.mountpoint)/\(name)",
                            "\(vault.plain)/out\(number)",
                        ])
                }
                for name in ["hole0", "data0"] {
                    try run(name).succeeded()
                    let same = try Command(["cmp", "\(vault.plain)/\(name)", "\(vault.plain)/out\(number)"]).run()
                    #expect(same.exitCode == 0, "\(program): \(name): \(same)")
                }
                for (name, change) in Self.changes {
                    #expect(try run(name).exitCode != 0, "\(program): \(name) \(change)")
                }
            }
        }
    }
}
