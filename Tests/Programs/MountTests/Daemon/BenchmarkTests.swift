import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The benchmarks' own programs.
    @Suite struct Benchmarks {
        @Test("the do-nothing server stores a tree, and shows it again after the next mount")
        func nullServer() throws {
            let directory = try TemporaryDirectory()
            let mountpoint = directory.appending("mount")
            mkdir(mountpoint, 0o755)
            try serve(directory, mountpoint) {
                let make = """
                    set -e; cd "$1"
                    mkdir -p a/b; head -c 100000 /dev/urandom > a/file; ln -s file a/link; chmod 640 a/file
                    touch a/b/gone; mv a/b/gone a/b/moved; ln a/file a/other; rm a/other; mkdir c; rmdir c
                    ! rmdir a 2>/dev/null; ! cat nothing 2>/dev/null
                    """
                try Command(["sh", "-c", make, "sh", mountpoint]).run().succeeded()
            }
            try serve(directory, mountpoint) {
                let list = "cd \"$1\"; find . -mindepth 1 -printf '%P %y %m %s %l;' | tr ';' '\\n' | sort"
                let listed = try Command(["sh", "-c", list, "sh", mountpoint]).run().succeeded()
                let lines = listed.output.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
                // The modes are without a umask, because the server does not apply one.
                #expect(
                    lines == [
                        "a d 777 4096", "a/b d 777 4096", "a/b/moved f 666 0", "a/file f 640 100000",
                        "a/link l 777 4 file",
                    ])
                let read = try Command(["sh", "-c", "cat \"$1\" | wc -c", "sh", "\(mountpoint)/a/file"]).run()
                #expect(read.output == "100000\n")
            }
        }

        @Test("a benchmark's file for which there is no room is not begun")
        func noRoom() throws {
            let directory = try TemporaryDirectory()
            let result = try Command([Products.binary, "bench", "--size", "1000000G", directory.path]).run()
            expectFailure(result, .usage, naming: "no room for a file of 1000000G")
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).isEmpty)
        }

        /// Mounts, runs `body`, unmounts, and expects the server to end without an error.
        private func serve(_ directory: TemporaryDirectory, _ mountpoint: String, _ body: () throws -> Void) throws {
            let server = try Command([Products.built("null-server"), directory.appending("state"), mountpoint]).start()
            defer {
                server.kill(SIGKILL)
                _ = try? Command(["fusermount3", "-uzq", mountpoint]).run()
            }
            try poll("the mount") { try Command(["mountpoint", "-q", mountpoint]).run().exitCode == 0 }
            Products.countMount()
            try body()
            try Command(["fusermount3", "-u", mountpoint]).run().succeeded()
            // Another test's new mount namespace may have a copy of the mount, which would keep the server.
            server.kill(SIGTERM)
            #expect(server.wait(timeout: .seconds(20)) == 0, "\(server.errors)")
        }

        @Test("the micro-benchmarks run, and print JSON")
        func micro() throws {
            let result = try Command([Products.built("vaultfs-micro"), "--runs", "1", "--run-time", "1", "--json"])
                .run().succeeded()
            struct Measurement: Decodable {
                let name: String
                let nanoseconds: Double
            }
            let measured = try JSONDecoder().decode([Measurement].self, from: Data(result.output.utf8))
            #expect(measured.count > 30)
            #expect(measured.allSatisfy { $0.nanoseconds > 0 && $0.nanoseconds.isFinite })
        }

        @Test("no unit of work takes more system calls or allocations than its budget")
        func cost() throws {
            // Only root may trace a daemon.
            guard geteuid() == 0 else { return }
            let directory = try TemporaryDirectory()
            let script = "\(Products.root)/scripts/bench/cost.py"
            let binaries = String(Products.binary.dropLast("/vaultfs".count))
            let arguments = [Products.python, script, "--binaries", binaries, "--work", directory.path]
            try Command(arguments, timeout: .seconds(240)).run().succeeded()
        }

        @Test("the comparison computes its goals")
        func goals() throws {
            try Command([Products.python, "\(Products.root)/scripts/bench/peers.py", "--self-test"])
                .run().succeeded()
        }
    }
}
