internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs protect CLASS PATH…`, `vaultfs protect PATH…`
struct ProtectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "protect", abstract: "Set the protection class of files and directories on a mount, or show it.",
        usage: """
            vaultfs protect [--recursive] [--json] <class> <path> ...
            vaultfs protect [--recursive] [--json] <path> ...
            """,
        discussion: """
            A class says what of a file works while the vault is locked:

              complete            nothing (the class of a new vault)
              unless-open         files that are open already go on working
              until-first-unlock  everything, once the mount has been unlocked
              none                everything, always

            The directories on the way to a file count too, the mountpoint among them: in one of class complete \
            nothing is found while the vault is locked.

            New files, directories and links take the class of the directory they are made in; a file that is moved \
            keeps its class. To set a class takes the right to write, as for any attribute: it is \
            user.vaultfs.class to setfattr and getfattr.

            Without a class, prints a line for each path: its class, two spaces, the path. A first argument that is \
            the name of a class is the class where paths follow it, and a path where it is alone; ./none is always a \
            path. With --json: an array of objects with class and path, of all that was shown or set.
            """)

    @Flag(
        name: [.customShort("R"), .long],
        help: "With directories, all that is in them; links are not followed, links and special files left out.")
    var recursive = false

    @Flag(help: "Print JSON.")
    var json = false

    @Argument(help: ArgumentHelp("A protection class and paths, or paths alone.", valueName: "class> <path"))
    var arguments: [PathArgument]

    func run() throws {
        ProcessSetup.raiseLimits()
        let request = try ProtectRequest(arguments.map(\.path))
        var tree = ProtectionTree(
            mounts: try MountTable.read(), newClass: request.newClass, isRecursive: recursive, isSilent: json)
        for path in request.paths { tree.visit(path) }
        if json { try Console.printJSON(tree.visited) }
        // Each failure has been reported by name.
        if tree.hasFailed { throw ExitCode(FailureCode.failure.rawValue) }
    }
}

/// What the arguments of `protect` ask for.
struct ProtectRequest: Equatable {
    /// Nil to show.
    let newClass: ProtectionClass?
    let paths: [FilePath]

    /// - Parameter arguments: at least one.
    /// - Throws: code `usage`, where a class has no path, or what stands in a class's place is neither class nor file.
    init(_ arguments: [FilePath]) throws(CommandFailure) {
        let first = arguments[0]
        let named = ProtectionClass(name: first.string)
        if let named, arguments.count > 1 {
            (newClass, paths) = (named, Array(arguments.dropFirst()))
            return
        }
        let mayBeClass = named != nil || arguments.count > 1 && first.components.count == 1 && first.isRelative
        if mayBeClass && !Self.exists(first) {
            let classes = ProtectionClass.allCases.map(\.name).joined(separator: ", ")
            throw CommandFailure(
                .usage,
                named != nil
                    ? "protect \(first.shown): no path to give this class to, and no file of that name"
                    : "'\(first.shown)' is neither a protection class (\(classes)) nor a file")
        }
        (newClass, paths) = (nil, arguments)
    }

    /// lstat(2).
    private static func exists(_ path: FilePath) -> Bool {
        path.withPlatformString { path in
            var status = stat()
            return lstat(path, &status) == 0 || currentErrno() != .noSuchFileOrDirectory
        }
    }
}
