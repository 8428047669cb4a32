internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
package import SystemPackage

/// The programs that keep a mount in use, from /proc: their working and root directory, open and mapped files. Sends no
/// request to the mount, which may hang. Shows only processes that this user may examine.
package enum MountUsers {
    /// The most processes named in a message.
    private static let mostNamed = 5

    /// Returns a list such as `vi (4711), bash (4712)`. Empty if none was found.
    package static func names(of mountpoint: FilePath) -> String {
        let processes = numbers(in: "/proc").filter { $0 != getpid() }
        let found = processes.filter { uses("/proc/\($0)", mountpoint.bytes) }
        let names = found.prefix(mostNamed).map { "\(name($0)) (\($0))" }
        return (names + (found.count > mostNamed ? ["\(found.count - mostNamed) more"] : [])).joined(separator: ", ")
    }

    private static func uses(_ process: String, _ mountpoint: [UInt8]) -> Bool {
        let files = numbers(in: process + "/fd").map { "\(process)/fd/\($0)" }
        let links = ["\(process)/cwd", "\(process)/root", "\(process)/exe"] + files
        if links.contains(where: { target($0)?.isPath(in: mountpoint) ?? false }) { return true }
        // The path of a mapped file is the sixth field of proc_pid_maps(5), the only one with a slash.
        guard let maps = try? Descriptor(path: FilePath(process + "/maps"), flags: O_RDONLY).readToEnd(limit: 1 << 24)
        else { return false }
        return maps.split(separator: UInt8(ascii: "\n")).contains { line in
            line.firstIndex(of: UInt8(ascii: "/")).map { Array(line[$0...]).isPath(in: mountpoint) } ?? false
        }
    }

    /// Calls readlink(2). Returns nil without permission.
    private static func target(_ link: String) -> [UInt8]? {
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink(link, &buffer, buffer.count)
        return count < 0 ? nil : buffer.prefix(count).map { UInt8(bitPattern: $0) }
    }

    private static func name(_ process: Int32) -> String {
        let bytes = try? Descriptor(path: FilePath("/proc/\(process)/comm"), flags: O_RDONLY).readToEnd(limit: 256)
        return String(decoding: (bytes ?? []).prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
            .withoutControlCharacters
    }

    private static func numbers(in directory: String) -> [Int32] {
        ((try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []).compactMap { Int32($0) }.sorted()
    }
}
