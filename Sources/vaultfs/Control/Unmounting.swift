internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// Takes a mount away: as root with umount2(2), else with fusermount3(1), which is set-user-id root.
enum Unmounting {
    static func unmount(_ mountpoint: FilePath) throws(CommandFailure) {
        if geteuid() == 0 {
            // UMOUNT_NOFOLLOW of <sys/mount.h>, which Swift's Glibc does not show.
            let result = mountpoint.withPlatformString { umount2($0, 8) }
            if result == 0 { return }
            let error = currentErrno()
            throw error == .resourceBusy
                ? busy(mountpoint) : CommandFailure(.failure, "cannot unmount \(mountpoint.shown): \(error)")
        }
        let (outcome, message) = try runHelper(mountpoint, ["-u", "--"])
        guard outcome != .exited(0) else { return }
        // strerror(3)'s words, in no locale of ours.
        if message.contains("busy") { throw busy(mountpoint) }
        throw CommandFailure(.failure, "cannot unmount \(mountpoint.shown): fusermount3 \(outcome): \(message)")
    }

    /// The same where it is in use, or its daemon does not answer: nobody finds it any more, and, as root, whoever waits for
    /// the daemon gets an error. Another user's waiters get theirs when the daemon ends.
    static func force(_ mountpoint: FilePath) throws(CommandFailure) {
        if geteuid() == 0 {
            // MNT_FORCE, MNT_DETACH and UMOUNT_NOFOLLOW.
            if mountpoint.withPlatformString({ umount2($0, 1 | 2 | 8) }) == 0 { return }
        }
        let (outcome, message) = try runHelper(mountpoint, ["-u", "-z", "--"])
        guard outcome != .exited(0) else { return }
        throw CommandFailure(.failure, "cannot unmount \(mountpoint.shown): fusermount3 \(outcome): \(message)")
    }

    private static func busy(_ mountpoint: FilePath) -> CommandFailure {
        CommandFailure(
            .inUse,
            "\(mountpoint.shown) is in use: close the programs that use it ('lsof +f -- \(mountpoint.shown)' names them); or --force"
        )
    }

    /// fusermount3's outcome, and the last line it wrote to stderr.
    private static func runHelper(
        _ mountpoint: FilePath, _ options: [String]
    ) throws(CommandFailure) -> (ChildProcess.Outcome, String) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw CommandFailure(.failure, "cannot make a pipe: \(currentErrno())") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        defer { close(ends[0]) }
        let child: pid_t
        do throws(Errno) {
            defer { close(ends[1]) }
            child = try ChildProcess.spawn(
                path: helperPath(),
                arguments: (["fusermount3"] + options).map { Array($0.utf8) } + [mountpoint.bytes],
                descriptors: [(ends[1], STDERR_FILENO)])
        } catch {
            throw CommandFailure(.cannotMount, "cannot run fusermount3: \(error); it comes with the package fuse3")
        }
        var output: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 4096)
        while case let count = read(ends[0], &piece, piece.count), count > 0, output.count < 65536 {
            output += piece[..<count]
        }
        let lines = String(decoding: output, as: UTF8.self).split(whereSeparator: \.isNewline)
        return (ChildProcess.wait(for: child), lines.last.map(String.init) ?? "")
    }

    /// Where distributions put it; not by PATH, since what runs here decides what is unmounted.
    private static func helperPath() -> String {
        let places = ["/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"]
        return places.first { access($0, X_OK) == 0 } ?? places[0]
    }
}
