import TestSupport
import Testing

extension PlainMountTests {
    /// Properties of a view other than its content.
    @Suite struct ViewReading {
        /// Three and a half chunks of 16 MiB.
        private static let film = ["16777216", "aes-128-cbc", "pkcs7", "60000000"]
        private static let vector = ["--iv", ViewCase.vector]

        private func mountFilm(_ arguments: [String] = []) throws -> ViewUnderTest {
            let view = try ViewUnderTest().made("chunks", Self.film)
            try view.mount("cbc-chunks", Self.vector + ["--key-file", "\(view.keys)/binary"] + arguments)
            return view
        }

        @Test("a web server on the view serves ranges")
        func web() throws {
            let view = try mountFilm()
            try view.program("views/view_web.py", [view.mountpoint, view.originals]).succeeded()
            try view.unmount()
        }

        @Test("one byte in the middle of a chunk takes one page and a block")
        func neededBlocks() throws {
            let view = try mountFilm()
            for offset in [0, 8_388_608 + 77, 16_777_216, 40_000_001, 59_999_999] {
                let blocks = try view.statistic("aesBlocksDecrypted")
                let bytes = try view.statistic("ciphertextBytesRead")
                try view.account.run([
                    "dd", "if=\(view.mountpoint)/file-60000000", "of=\(view.plain)/byte", "bs=1", "count=1",
                    "skip=\(offset)", "iflag=direct",
                ]).succeeded()
                #expect(try view.statistic("aesBlocksDecrypted") - blocks <= 4096 / 16 + 1, "at \(offset)")
                #expect(try view.statistic("aesBlocksDecrypted") > blocks, "at \(offset)")
                #expect(try view.statistic("ciphertextBytesRead") - bytes <= 4096 + 16 + 16, "at \(offset)")
            }
            try view.unmount()
        }

        @Test("a source file that changes")
        func replaced() throws {
            let view = try ViewUnderTest().made("chunks", ["4096", "aes-128-cbc", "pkcs7", "5000"])
            try view.mount(
                "cbc-chunks", Self.vector + ["--chunk-size", "4096", "--key-file", "\(view.keys)/binary"])
            try view.program("views/view_replaced.py", [view.store.path]).succeeded()
            try view.unmount()
        }

        @Test("a single file as the source")
        func single() throws {
            let view = try ViewUnderTest().made("chunks", ["4096", "aes-128-cbc", "pkcs7", "10000", "20000"])
            try view.mount(
                "cbc-chunks", Self.vector + ["--chunk-size", "4096", "--key-file", "\(view.keys)/binary"],
                source: "\(view.source)/file-10000")
            #expect(try view.account.run(["ls", "-A", view.mountpoint]).succeeded().output == "file-10000\n")
            try view.account.run(["cmp", "\(view.mountpoint)/file-10000", "\(view.originals)/file-10000"]).succeeded()
            #expect(try view.account.run(["cat", "\(view.mountpoint)/file-20000"]).exitCode != 0)
            try view.unmount()
        }

        @Test("nothing can be changed, and every entry in the source is shown", arguments: Settings.accounts)
        func readOnly(setting: Setting) throws {
            let view = try ViewUnderTest(setting.account()).made("chunks", ["4096", "aes-128-cbc", "pkcs7", "10000"])
            try view.program(
                "views/view_tree.py", [view.account.binary, view.store.path, view.lockFile], timeout: .seconds(60)
            ).succeeded()
        }
    }
}
