import Foundation

/// A mount namespace with /dev/fuse open to everyone, and fusectl mounted as by systemd. A helper process keeps it, and
/// ends with this process.
final class PrivateNamespace: @unchecked Sendable {
    // Set in init, never changed.
    /// The id of `nobody`, which every Debian has. It needs a name, because fusermount3 looks it up.
    static let uid = 65534
    static let gid = 65534

    private let holder: RunningProcess
    private let directory: TemporaryDirectory
    let binary: String
    let support: String
    let environment: [String: String]

    /// Throws if the machine does not allow this (no CAP_SYS_ADMIN, no mknod).
    init() throws {
        directory = try TemporaryDirectory()
        let device = directory.appending("device")
        // The helper ends with this process, because it notices the exit of its parent. Its own tmpfs allows device
        // nodes.
        let script = """
            set -e
            mkdir \(device) && mount -t tmpfs -o mode=755 none \(device)
            mknod \(device)/fuse c 10 229 && chmod 666 \(device)/fuse && mount --bind \(device)/fuse /dev/fuse
            mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
            echo ready
            while kill -0 \(getpid()) 2>/dev/null; do sleep 1; done
            umount -l \(device)
            rm -rf \(directory.path) "$(readlink /proc/$$/fd/1)" "$(readlink /proc/$$/fd/2)"
            """
        holder = try Command(["unshare", "--mount", "--propagation", "private", "sh", "-c", script]).start()
        let deadline = ContinuousClock.now + .seconds(10)
        while !holder.output.contains("ready") {
            if holder.wait(timeout: .milliseconds(10)) != nil || ContinuousClock.now > deadline {
                holder.kill(SIGKILL)
                throw TestFailure("no private namespace: \(holder.errors)")
            }
        }
        support = directory.appending("Tests/Support")
        binary = directory.appending("vaultfs")
        environment = [
            "HOME": "/nonexistent", "LD_LIBRARY_PATH": directory.appending("lib"), "TMPDIR": "/tmp",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": "\(support)/Programs/modules",
        ]
        try copyWhatItNeeds()
    }

    deinit { holder.kill(SIGKILL) }

    /// The beginning of a command line to run inside.
    var entering: [String] { ["nsenter", "--mount=/proc/\(holder.pid)/ns/mnt", "--"] }

    /// The beginning of a command line to run as the ordinary user.
    var becoming: [String] { Self.becoming(uid: Self.uid, gid: Self.gid) }

    static func becoming(uid: Int, gid: Int) -> [String] {
        ["setpriv", "--reuid=\(uid)", "--regid=\(gid)", "--clear-groups", "--"]
    }

    /// Copies the binary, its Swift libraries (only root may be able to read the toolchain's directory), and the
    /// programs.
    private func copyWhatItNeeds() throws {
        try Command(["cp", Products.binary, binary]).run().succeeded()
        let (library, reader) = (directory.appending("lib"), directory.appending("Reader"))
        let copy = """
            set -e
            mkdir -p \(library) \(support)
            ldd \(binary) | awk '$3 ~ /swift/ { print $3 }' | xargs -r cp -t \(library)
            cp -r \(Products.support)/Programs \(support)/
            cp -r \(Products.root)/Reader \(reader)
            chmod -R a+rX \(library) \(directory.appending("Tests")) \(reader) \(binary)
            """
        try Command(["sh", "-c", copy]).run().succeeded()
    }
}
