internal import ArgumentParser
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import SystemPackage

/// `null-server STATE MOUNTPOINT`: mounts a file system that does nothing with our own FUSE session, and serves it in the
/// foreground until it is unmounted, or SIGTERM or SIGINT comes. Benchmarks measure it for what the transport allows.
@main
struct NullServer: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "null-server", abstract: "Mount a file system in memory that does nothing, to measure FUSE by.")

    @Argument(help: "Where the tree, without contents, is kept between two mounts.")
    var state: String

    @Argument(help: "An empty directory.")
    var mountpoint: String

    mutating func run() throws {
        LoggingSystem.bootstrap(StreamLogHandler.standardError)
        // In this thread, and so in all that it makes.
        var ending = sigset_t()
        sigemptyset(&ending)
        for number in [SIGTERM, SIGINT] { sigaddset(&ending, number) }
        pthread_sigmask(SIG_BLOCK, &ending, nil)
        let fileSystem = try NullFileSystem()
        try SavedTree.read(from: state, into: fileSystem)
        let options = SessionOptions(mountpoint: FilePath(mountpoint), fuseOptions: [], sourceName: "null")
        let session = try FuseSession(
            fileSystem: fileSystem, options: options, logger: Logger(label: "null-server"))
        let signals = try BackgroundThread { [ending] in
            var ending = ending
            var number: Int32 = 0
            if sigwait(&ending, &number) == 0 { session.requestUnmount() }
        }
        signals.detach()
        try session.run(whenUnmounted: {})
        try SavedTree.write(fileSystem, to: state)
        // Not by way of exit(3): the thread that waits for signals is still there.
        _exit(0)
    }
}
