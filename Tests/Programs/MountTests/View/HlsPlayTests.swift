import TestSupport
import Testing

extension PlainMountTests {
    /// Downloads made by ffmpeg, played from the mount.
    @Suite struct HlsPlay {
        static let kinds = ["one-key", "vector", "rekey", "single-file", "fragments", "fragment-file", "variants"]

        private func compare(_ kind: String, _ account: Account) throws {
            let view = try ViewUnderTest(account)
            try account.program("views/hls_files.py", [kind, view.store.path]).succeeded()
            try view.mount("hls")
            try view.program(
                "views/hls_compare.py", [view.mountpoint, view.originals, view.source], timeout: .seconds(120)
            ).succeeded()
            if kind == "single-file" {
                try view.program("views/view_web.py", [view.mountpoint, view.originals]).succeeded()
            }
            #expect(try view.problems().isEmpty)
            try view.unmount()
        }

        @Test("ffprobe and ffmpeg see the same data as before the encryption", arguments: kinds)
        func kind(_ kind: String) throws { try compare(kind, .current) }

        @Test("an ordinary user's mount", .enabled(if: Settings.hasOrdinaryUser, "takes a user"))
        func user() throws { try compare("single-file", Setting.userOnTmpfs.account()) }
    }
}
