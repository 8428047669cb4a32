import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A download locked while it is played.
    @Suite struct HlsLocks {
        private func frames(_ view: ViewUnderTest, _ directory: String) throws -> String {
            try view.account.run(
                ["ffmpeg", "-v", "error", "-i", "out.m3u8", "-f", "framemd5", "-"], directory: directory
            ).succeeded().output
        }

        @Test("ffmpeg gets errors, nothing is readable; after the unlock, it plays", arguments: ["refuse", "forget"])
        func playing(policy: String) throws {
            let view = try ViewUnderTest()
            try view.account.program("views/hls_files.py", ["rekey", view.store.path]).succeeded()
            try view.mount("hls", ["--on-lock", policy])
            // ffmpeg writes into a pipe that the test stops reading, so it does not finish before the lock.
            let film = "\(view.plain)/film"
            mkfifo(film, 0o600)
            let player = try view.account.command(
                ["ffmpeg", "-v", "warning", "-y", "-i", "out.m3u8", "-f", "rawvideo", film], directory: view.mountpoint
            ).start()
            let pipe = open(film, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
            defer { close(pipe) }
            func watch() -> Int {
                var frame = [UInt8](repeating: 0, count: 160 * 90)
                return Glibc.read(pipe, &frame, frame.count)
            }
            try poll("the first frames", timeout: .seconds(30)) { watch() > 0 }
            try Data().write(to: URL(fileURLWithPath: view.lockFile))
            try poll("the lock") { try view.status()["state"] as? String == "locked" }
            for arguments in [["ls", view.mountpoint], ["cat", "\(view.mountpoint)/out0.ts"]] {
                let result = try view.account.run(arguments)
                #expect(result.exitCode != 0 && result.output.isEmpty, "\(result)")
                #expect(result.errors.contains("Required key not available"), "\(result)")
            }
            try poll("the player's end", timeout: .seconds(30)) {
                while watch() > 0 {}
                return player.wait(timeout: .zero) != nil
            }
            #expect(player.errors.contains("Failed to open segment"), "\(player.errors)")
            try Command(["rm", view.lockFile]).run().succeeded()
            try poll("the unlock") { try view.status()["state"] as? String == "unlocked" }
            #expect(try frames(view, view.mountpoint) == frames(view, view.originals))
        }
    }
}
