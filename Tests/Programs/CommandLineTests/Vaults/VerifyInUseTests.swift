import Foundation
import TestSupport
import Testing

/// `vaultfs verify` of a vault that is in use by a process that cannot be queried.
@Suite(.timeLimit(.minutes(20))) struct VerifyInUseTests {
    private let place: SlotPlace

    init() throws { place = try SlotPlace() }

    /// Runs `vaultfs verify` while a Python script, which gets the vault's path, has run these lines and waits.
    private func verify(while script: String) throws -> CommandResult {
        let script = "import fcntl, os, sys, time\n\(script)\nprint('ready', flush=True)\ntime.sleep(60)"
        let holder = try Command([Products.python, "-c", script, place.vault]).start()
        defer {
            holder.kill(SIGKILL)
            _ = holder.wait(timeout: .seconds(20))
        }
        try poll("the holder") { holder.output.contains("ready") }
        return try place.run(["verify", place.vault] + place.opening)
    }

    @Test("a vault in use by another process of this machine is checked like a mounted vault")
    func process() throws {
        let result = try verify(while: "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)")
        #expect(result.exitCode == 0 && result.output.split(separator: "\n").count == 1, "\(result)")
    }

    @Test("a vault in use by another machine is checked like a mounted vault")
    func machine() throws {
        let result = try verify(
            while: """
                file = os.open(sys.argv[1] + "/vaultfs.lock", os.O_RDWR)
                fcntl.lockf(file, fcntl.LOCK_EX)
                os.pwrite(file, b"5e another-boot 4711 elsewhere\\n", 0)
                """)
        #expect(result.exitCode == 0 && result.output.split(separator: "\n").count == 1, "\(result)")
    }
}
