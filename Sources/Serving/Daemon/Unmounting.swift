internal import CLinux
package import FuseSession
internal import Glibc
internal import LinuxSystem
package import SystemPackage

extension MountError {
    /// The beginning of the reason of `notDurable`.
    package static let notKnownInPlace = "unmounted, but not everything that was written is known to be in place"
}

/// Removes a mount. Any thread.
package enum Unmounting {
    /// Unmounts: as root with umount2(2), otherwise with fusermount3(1), which is set-user-id root. With root's force,
    /// programs waiting for the daemon get an error at once, otherwise when the daemon ends.
    /// - Parameter force: unmounts also a used mount.
    /// - Throws: kind `inUse`, naming the programs that use it; `failure`, `cannotMount`.
    package static func unmount(_ mountpoint: FilePath, force: Bool) throws(MountError) {
        if geteuid() == 0 {
            // UMOUNT_NOFOLLOW of <sys/mount.h>, which Swift's Glibc lacks, with MNT_FORCE and MNT_DETACH.
            if mountpoint.withPlatformString({ umount2($0, force ? 8 | 1 | 2 : 8) }) == 0 { return }
            let error = currentErrno()
            if error == .resourceBusy, !force { throw busy(mountpoint) }
            if !force { throw MountError(.failure, reason: "cannot unmount \(mountpoint.shown): \(error)") }
        }
        let (outcome, message) = try runHelper(mountpoint, force ? ["-u", "-z", "--"] : ["-u", "--"])
        guard outcome != .exited(0) else { return }
        // fusermount3 prints strerror(3)'s text and sets no locale.
        if message.contains("busy"), !force { throw busy(mountpoint) }
        throw MountError(.failure, reason: "cannot unmount \(mountpoint.shown): fusermount3 \(outcome): \(message)")
    }

    private static func busy(_ mountpoint: FilePath) -> MountError {
        let above = (try? MountTable.read())?.mounts(above: mountpoint.bytes).map {
            FilePath(bytes: $0.mountpoint).shown
        }
        if let above, !above.isEmpty {
            let names = above.reversed().joined(separator: ", ")
            return MountError(
                .inUse, reason: "\(mountpoint.shown) is in use by mounts: first unmount \(names), or --force")
        }
        let users = MountUsers.names(of: mountpoint)
        return MountError(
            .inUse,
            reason:
                "\(mountpoint.shown) is in use\(users.isEmpty ? "" : " by \(users)"): close what uses it, or --force")
    }

    /// Returns fusermount3's outcome and its last line on stderr.
    private static func runHelper(
        _ mountpoint: FilePath, _ options: [String]
    ) throws(MountError) -> (ChildProcess.Outcome, String) {
        var ends: [Int32] = [-1, -1]
        guard linux_pipe(&ends) == 0 else {
            throw MountError(.failure, reason: "cannot make a pipe: \(currentErrno())")
        }
        let printed = Descriptor(owning: ends[0])
        let child: pid_t
        do throws(StoreError) {
            defer { close(ends[1]) }
            child = try ChildProcess.spawn(
                path: helperPath(),
                arguments: (["fusermount3"] + options).map { Array($0.utf8) } + [mountpoint.bytes],
                descriptors: [(ends[1], STDERR_FILENO)])
        } catch {
            throw MountError(
                .cannotMount, reason: "cannot run fusermount3: \(error.errno); it comes with the package fuse3")
        }
        let output = (try? printed.readToEnd(limit: 65536)) ?? []
        let lines = String(decoding: output, as: UTF8.self).split(whereSeparator: \.isNewline)
        return (ChildProcess.wait(for: child), lines.last.map(String.init) ?? "")
    }

    /// Returns the program's usual path. PATH is ignored, because this program decides what is unmounted.
    private static func helperPath() -> String {
        let paths = ["/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"]
        return paths.first { access($0, X_OK) == 0 } ?? paths[0]
    }
}
