import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A download that is locked while it is played.
    @Suite struct HlsLocks {
        private func frames(_ view: ViewUnderTest, _ directory: String) throws -> String {
            try view.account.run(
                ["ffmpeg", "-v", "error", "-i", "out.m3u8", "-f", "framemd5", "-"], directory: directory
            ).succeeded().output
        }

        @Test("ffmpeg gets errors, nothing is readable; unlocked, it plays", arguments: ["refuse", "forget"])
        func playing(policy: String) throws {
            let view = try ViewUnderTest()
            try view.account.program("hls_files.py", ["rekey", view.store.path]).succeeded()
            try view.mount("hls", ["--on-lock", policy])
            // At the speed of the film, of six seconds: it is not done before the lock.
            let player = try view.account.command(
                ["ffmpeg", "-v", "warning", "-progress", "-", "-re", "-i", "out.m3u8", "-f", "null", "/dev/null"],
                directory: view.mountpoint
            ).start()
            try poll("the first frames") { player.output.contains("frame=") }
            try Data().write(to: URL(fileURLWithPath: view.lockFile))
            try poll("the lock") { try view.status()["state"] as? String == "locked" }
            for arguments in [["ls", view.mountpoint], ["cat", "\(view.mountpoint)/out0.ts"]] {
                let result = try view.account.run(arguments)
                #expect(result.exitCode != 0 && result.output.isEmpty, "\(result)")
                #expect(result.errors.contains("Required key not available"), "\(result)")
            }
            try #require(player.wait(timeout: .seconds(20)) != nil)
            #expect(player.errors.contains("Failed to open segment"), "\(player.errors)")
            try Command(["rm", view.lockFile]).run().succeeded()
            try poll("the unlock") { try view.status()["state"] as? String == "unlocked" }
            #expect(try frames(view, view.mountpoint) == frames(view, view.originals))
        }
    }
}
