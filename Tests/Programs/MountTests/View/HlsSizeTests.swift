import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Sizes that need keys, and keys that take time: a key command that waits until the test releases it.
    @Suite struct HlsSizes {
        private func mounted(_ arguments: [String] = []) throws -> ViewUnderTest {
            let view = try ViewUnderTest()
            // Use byte ranges, for which the playlist's text needs keys too.
            try view.account.program("views/hls_files.py", ["single-file", view.store.path]).succeeded()
            let command = """
                touch '\(view.keys)/asked'; until test -e '\(view.keys)/go'; do sleep 0.02; done
                test ! -e '\(view.keys)/fail' && cat '\(view.source)/'"$VAULTFS_KEY_URI"
                """
            try view.mount("hls", ["--key-command", command] + arguments)
            return view
        }

        private func sizes(_ view: ViewUnderTest, in directory: String) throws -> String {
            try view.account.run(["stat", "-c", "%n %s", "out.m3u8", "out.ts"], directory: directory).succeeded().output
        }

        /// Returns the size seen by a program just after it has opened a file.
        private func sizeOpened(_ view: ViewUnderTest, _ name: String, in directory: String) throws -> CommandResult {
            try view.account.run(["sh", "-c", "exec <\"$1\" && stat -Lc %s /dev/stdin", "sh", "\(directory)/\(name)"])
        }

        private func letGo(_ view: ViewUnderTest) throws {
            try Data().write(to: URL(fileURLWithPath: "\(view.keys)/go"))
        }

        private func wasAsked(_ view: ViewUnderTest) -> Bool {
            FileManager.default.fileExists(atPath: "\(view.keys)/asked")
        }

        @Test("a listing does not wait for the key command, and is right once the command has replied")
        func listing() throws {
            let view = try mounted()
            let listed = try view.account.run(["ls", "-l", view.mountpoint], timeout: .seconds(10)).succeeded()
            #expect(listed.output.contains("out.ts"))
            #expect(try sizes(view, in: view.mountpoint) == sizes(view, in: view.source))
            try poll("the key command") { wasAsked(view) }
            try letGo(view)
            try poll("the sizes", timeout: .seconds(30)) {
                try sizes(view, in: view.mountpoint) == sizes(view, in: view.originals)
            }
            #expect(try view.problems().isEmpty)
        }

        @Test("a program that opens a file waits, and sees its size")
        func opened() throws {
            let view = try mounted()
            try letGo(view)
            #expect(try sizes(view, in: view.mountpoint) == sizes(view, in: view.source))
            #expect(!wasAsked(view))
            for name in ["out.m3u8", "out.ts"] {
                let size = try sizeOpened(view, name, in: view.originals).succeeded().output
                #expect(try sizeOpened(view, name, in: view.mountpoint).succeeded().output == size)
            }
            #expect(try sizes(view, in: view.mountpoint) == sizes(view, in: view.originals))
        }

        @Test("--prewarm: sizes are right without a listing")
        func prewarm() throws {
            let view = try mounted(["--prewarm"])
            try poll("the key command") { wasAsked(view) }
            try letGo(view)
            try poll("the sizes") { try sizes(view, in: view.mountpoint) == sizes(view, in: view.originals) }
        }

        @Test("a key command that fails is run again at the next open")
        func failing() throws {
            let view = try mounted()
            try Data().write(to: URL(fileURLWithPath: "\(view.keys)/fail"))
            try letGo(view)
            for name in ["out.m3u8", "out.ts"] {
                let result = try sizeOpened(view, name, in: view.mountpoint)
                #expect(result.errors.contains("Required key not available"), "\(result)")
                let problems = try view.problems()
                #expect(
                    problems.contains("\(name): no key for key0.bin: the key command failed with exit code 1"),
                    "\(problems)")
            }
            try Command(["rm", "\(view.keys)/fail"]).run().succeeded()
            for name in ["out.m3u8", "out.ts"] {
                _ = try sizeOpened(view, name, in: view.mountpoint).succeeded()
            }
            #expect(try sizes(view, in: view.mountpoint) == sizes(view, in: view.originals))
            #expect(try view.problems().isEmpty)
        }
    }
}
