internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Whether this machine lets us mount, said before anybody is asked for a passphrase.
enum FuseDevice {
    private static let configurationPath: FilePath = "/etc/fuse.conf"

    /// - Throws: code `cannotMount`.
    static func check() throws(CommandFailure) {
        let fd = open("/dev/fuse", O_RDWR | O_CLOEXEC)
        if fd >= 0 {
            close(fd)
            return
        }
        switch currentErrno() {
        case .noSuchFileOrDirectory, .noSuchAddressOrDevice, Errno(rawValue: ENODEV):
            throw CommandFailure(.cannotMount, "no /dev/fuse: load the fuse module ('modprobe fuse' as root)")
        case .permissionDenied, .notPermitted:
            throw CommandFailure(
                .cannotMount, "no permission to open /dev/fuse: its mode is usually 666 ('ls -l /dev/fuse')")
        case let error:
            throw CommandFailure(.cannotMount, "cannot open /dev/fuse: \(error)")
        }
    }

    /// Whether fusermount3(1) will accept allow_other and allow_root of this user.
    static func checkSharing() throws(CommandFailure) {
        guard geteuid() != 0 else { return }
        var permits = false
        if let bytes = try? SecretReader.read(path: configurationPath, limit: 1 << 20) {
            let text = bytes.withBytes { String(decoding: $0, as: UTF8.self) }
            permits = text.split(whereSeparator: \.isNewline).contains { line in
                line.split(whereSeparator: \.isWhitespace).joined() == "user_allow_other"
            }
        }
        guard permits else {
            throw CommandFailure(
                .cannotMount, "allow_other and allow_root need the line 'user_allow_other' in \(configurationPath)")
        }
    }
}
