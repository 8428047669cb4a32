import Foundation
import TestSupport

/// A TPM 2.0 in software (swtpm), on a port of this machine, with its own state. It ends with this object.
final class SoftwareTpm {
    private let directory: TemporaryDirectory
    private let port: Int
    private var process: RunningProcess?
    /// Every byte sent to the TPM and received from it.
    private let log: String

    init() throws {
        directory = try TemporaryDirectory()
        log = directory.appending("log")
        // The control channel uses the next port. Both are below the ports assigned by the kernel.
        for _ in 0..<20 {
            let port = Int.random(in: 10_000..<15_000) * 2
            if let process = try Self.start(port, state: directory.path, log: log) {
                (self.port, self.process) = (port, process)
                return
            }
        }
        throw TestFailure("no swtpm to be had")
    }

    deinit { stop() }

    /// The address for tpm2-tools.
    var address: String { Self.address(port) }

    /// Returns the address by number, because a container may lack /etc/hosts, and so localhost.
    private static func address(_ port: Int) -> String { "swtpm:host=127.0.0.1,port=\(port)" }

    /// Starts a TPM. Returns nil if another process has the port.
    private static func start(_ port: Int, state: String, log: String) throws -> RunningProcess? {
        let process = try Command(
            [
                "swtpm", "socket", "--tpm2", "--tpmstate", "dir=\(state)", "--log", "file=\(log),level=20",
                "--server", "type=tcp,port=\(port)", "--ctrl", "type=tcp,port=\(port + 1)",
                "--flags", "not-need-init,startup-clear",
            ]
        ).start()
        for _ in 0..<500 {
            if process.wait(timeout: .milliseconds(20)) != nil { return nil }
            let probe = Command(
                ["tpm2_getcap", "handles-transient"], environment: ["TPM2TOOLS_TCTI": address(port)])
            // Another process with this port may have replied, while this TPM is about to end.
            if try probe.run().exitCode == 0 { return process.wait(timeout: .milliseconds(50)) == nil ? process : nil }
        }
        process.kill(SIGKILL)
        return nil
    }

    /// Powers off without a shutdown command, as in a crash of the machine.
    func stop() {
        process?.kill(SIGKILL)
        _ = process?.wait(timeout: .seconds(10))
        process = nil
    }

    /// Restarts the machine: sealed objects remain, PCRs are reset.
    func restart() throws {
        // swtpm writes its state at each change, so a kill loses nothing.
        stop()
        process = try Self.start(port, state: directory.path, log: log)
        if process == nil { throw TestFailure("swtpm does not start again") }
    }

    func pause() { process?.kill(SIGSTOP) }
    func resume() { process?.kill(SIGCONT) }

    /// Runs a program of tpm2-tools.
    @discardableResult
    func tool(_ arguments: [String]) throws -> String {
        try Command(arguments, environment: ["TPM2TOOLS_TCTI": address]).run().succeeded().output
    }

    /// Lists the objects and sessions left in the TPM.
    func leftovers() throws -> String {
        try ["transient", "loaded-session", "saved-session"].map { try tool(["tpm2_getcap", "handles-\($0)"]) }.joined()
    }

    /// Returns all bytes of its traffic so far.
    func traffic() throws -> [UInt8] {
        let text = try String(contentsOfFile: log, encoding: .utf8)
        let rows = text.split(separator: "\n").filter { $0.hasPrefix(" ") }
        let words = rows.flatMap { $0.split(separator: " ") }
        return words.filter { $0.count == 2 }.compactMap { UInt8($0, radix: 16) }
    }
}
