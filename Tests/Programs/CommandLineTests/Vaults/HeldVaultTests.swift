import Foundation
import Glibc
import TestSupport
import Testing

/// A vault that another machine writes, or that a process of this machine writes by another path. `vaultfs.lock` shows
/// it.
@Suite(.timeLimit(.minutes(20))) struct HeldVaultTests {
    private let place: SlotPlace
    private var lockFile: URL { URL(fileURLWithPath: place.vault + "/vaultfs.lock") }

    init() throws { place = try SlotPlace() }

    /// Locks the file as a server does for its clients.
    private func hold(_ note: String) throws -> FileHandle {
        let file = try FileHandle(forUpdating: lockFile)
        try file.truncate(atOffset: 0)
        try file.write(contentsOf: Data(note.utf8))
        try lock(file, F_WRLCK)
        return file
    }

    private func lock(_ file: FileHandle, _ type: Int32) throws {
        var lock = Glibc.flock()
        lock.l_type = Int16(type)
        // F_OFD_SETLK (fcntl(2)).
        try #require(fcntl(file.fileDescriptor, 37, &lock) == 0)
    }

    private func user() throws -> [String: Any]? {
        try place.fields(place.run(["info", "--json", place.vault]).succeeded())["mounted"] as? [String: Any]
    }

    @Test("the machine that has the vault, and the remedy, are named before a secret is read")
    func machineThatHasVault() throws {
        let file = try hold("5e another-boot 4711 elsewhere 1 1\n")
        // If it were read, the read would fail first.
        let unread = ["--passfile", place.file("absent")]
        let expected =
            "vaultfs: \(place.vault) is in use by process 4711 on elsewhere: end it there, for example with 'vaultfs "
            + "unmount'. If elsewhere has died, try again when the store has released its lock\n"
        for arguments in [
            ["rekey", "--yes", place.vault], ["verify", "--repair", "--yes", place.vault],
            ["export", place.vault, place.file("out")], ["import", place.directory.path, place.vault],
        ] {
            let result = try place.run(arguments + unread)
            #expect(result.exitCode == 5 && result.errors == expected, "\(arguments): \(result)")
        }
        let user = try #require(try user())
        #expect(user["pid"] as? Int == 4711 && user["host"] as? String == "elsewhere")
        #expect(try place.run(["info", place.vault]).succeeded().output.contains("by process 4711 on elsewhere\n"))
        // Slots can be changed while the vault is mounted, on any machine.
        try place.slot("add", ["--new-keyfile", place.file("keyfile")] + place.opening).succeeded()
        // A record that a crash leaves does not lock the vault.
        // Closing is not enough: processes that other tests start may have inherited the descriptor.
        try lock(file, F_UNLCK)
        #expect(try self.user() == nil)
        // A writer makes the log before its record (Log-15), so the only damage is that this one has made none.
        let verified = try place.run(["verify", place.vault] + place.opening)
        #expect(verified.exitCode == 8 && verified.output.contains("vaultfs.log is missing"), "\(verified)")
        #expect(verified.output.contains(": 1 finding of damage"), "\(verified)")
        #expect(verified.errors.contains(": 1 finding of damage: repair it with --repair, or "), "\(verified)")
    }

    @Test("a process of this machine is found by its note, and no other is taken for it")
    func processOfThisMachine() throws {
        let boot = try String(contentsOfFile: "/proc/sys/kernel/random/boot_id", encoding: .utf8).dropLast()
        let stat = try String(contentsOfFile: "/proc/self/stat", encoding: .utf8)
        let fields = try #require(stat.split(separator: ")").last).split(separator: " ")
        let namespace = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/ns/pid")
            .filter(\.isNumber)
        func note(_ start: Substring) -> String { "5e \(boot) \(getpid()) here \(start) \(namespace)\n" }
        try Data(note(fields[19]).utf8).write(to: lockFile)
        let user = try #require(try user())
        #expect(user["pid"] as? Int32 == getpid() && user["host"] == nil && user["command"] != nil)
        try Data(note("1").utf8).write(to: lockFile)
        #expect(try self.user() == nil)
    }
}
