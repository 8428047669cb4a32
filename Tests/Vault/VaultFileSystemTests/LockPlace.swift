import FoundationEssentials
import Glibc
import SystemPackage

/// A directory for one test's lock file, removed with it.
final class LockPlace: Sendable {
    let directory: FilePath
    var file: FilePath { directory.appending("device.lock") }

    init() throws {
        directory = FilePath(
            FileManager.default.temporaryDirectory.path() + "/vaultfs-lock-" + UUID().uuidString)
        try makeDirectory()
    }

    deinit {
        try? FileManager.default.removeItem(atPath: directory.string)
    }

    func makeDirectory() throws {
        try FileManager.default.createDirectory(
            atPath: directory.string, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o700])
    }

    func create() throws { try Bytes.put([], at: file.string) }
    func remove() throws { try FileManager.default.removeItem(atPath: file.string) }
    func removeDirectory() throws { try FileManager.default.removeItem(atPath: directory.string) }
}
