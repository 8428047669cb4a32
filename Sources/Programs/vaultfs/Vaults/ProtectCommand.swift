internal import ArgumentParser
internal import CLinux
internal import Daemon
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
            A file's class decides what works while the vault is locked:

              complete            nothing (the class of a new vault)
              unless-open         files that are open already
              until-first-unlock  everything, once the mount has been unlocked
              none                everything, always
              inbox               directories: new files can be made, but not read

            The directories above a file count too, including the mountpoint: in a directory of class complete \
            nothing is found while the vault is locked.

            New files, directories and links take the class of their directory. In an inbox, files and links are of class \
            unless-open, and with --recursive the files that are there keep theirs. A file that is moved keeps its class. \
            Setting a class needs the right to write, as for any attribute: setfattr and getfattr know it as \
            user.vaultfs.class.

            Without a class, prints a line for each path: its class, two spaces, the path. A first argument that is \
            the name of a class is the class if paths follow it, and a path if it is alone. ./none is always a \
            path. With --json: an array of objects with class and path, for each path that was shown or set.
            """)

    @Flag(
        name: [.customShort("R"), .long],
        help: "Include the content of directories. Links are not followed. Links and special files are left out.")
    var recursive = false

    @Flag(help: "Print JSON.")
    var json = false

    @Argument(
        help: ArgumentHelp("A protection class and paths, or paths alone.", valueName: "class|path"),
        completion: Completions.classesAndFiles)
    var arguments: [PathArgument]

    func run() throws {
        ProcessSetup.raiseLimits()
        let request = try ProtectRequest(arguments.map(\.path))
        var tree = ProtectionTree(
            mounts: try MountTable.read(), newClass: request.newClass, isRecursive: recursive, isSilent: json)
        for path in request.paths { tree.visit(path) }
        if json { try Console.printJSON(tree.visited) }
        if tree.hasFailed { throw ExitCode(FailureCode.failure.rawValue) }
    }
}

struct ProtectRequest: Equatable {
    /// The class to set; nil to show the classes.
    let newClass: ProtectionClass?
    let paths: [FilePath]

    /// - Parameter arguments: at least one.
    /// - Throws: code `usage` if a class has no path, or the first argument is neither class nor file.
    init(_ arguments: [FilePath]) throws(CommandFailure) {
        let first = arguments[0]
        let named = ProtectionClass(name: first.string)
        if let named, arguments.count > 1 {
            (newClass, paths) = (named, Array(arguments.dropFirst()))
            return
        }
        let mayBeClass = named != nil || arguments.count > 1 && first.components.count == 1 && first.isRelative
        if mayBeClass && Mountpoint.isMissing(first) {
            let classes = ProtectionClass.allCases.map(\.name).joined(separator: ", ")
            throw CommandFailure(
                .usage,
                named != nil
                    ? "protect \(first.shown): no path to give this class to, and no file of that name"
                    : "'\(first.shown)' is neither a protection class (\(classes)) nor a file")
        }
        (newClass, paths) = (nil, arguments)
    }
}

/// Shows or sets the protection class of paths, and optionally of everything below them, through the attribute
/// `user.vaultfs.class`. Reports failures and goes on.
struct ProtectionTree {
    struct Visited: Encodable {
        let path: String
        let `class`: String
    }

    private static let attribute = Array("user.vaultfs.class".utf8)

    /// The devices of vaultfs mounts, because only there the attribute has a meaning.
    private let devices: Set<dev_t>
    /// The class to set; nil to show the classes.
    private let newClass: ProtectionClass?
    private let isRecursive, isSilent: Bool

    private(set) var visited: [Visited] = []
    private(set) var hasFailed = false

    /// - Parameter isSilent: collects `visited` instead of printing lines.
    init(mounts: MountTable, newClass: ProtectionClass?, isRecursive: Bool, isSilent: Bool) {
        devices = Set(mounts.entries.lazy.filter(\.isOurs).compactMap(\.device))
        self.newClass = newClass
        self.isRecursive = isRecursive
        self.isSilent = isSilent
    }

    /// Visits a path from the command line. Follows a link, as setfattr(1) does.
    mutating func visit(_ path: FilePath) {
        do throws(StoreError) {
            let pinned = try Descriptor(path: path, flags: linux_O_PATH)
            try visit(pinned, path, kind: try pinned.status().st_mode & S_IFMT)
            if newClass == .inbox && !hasFailed && !isSilent {
                Console.confirm(
                    "\(path.shown): takes new files while the vault is locked; files that are made in it are of class "
                        + ProtectionClass.inbox.ofNewFiles.name)
            }
            if let newClass { warnIfHidden(path, newClass) }
        } catch {
            fail(path, error)
        }
    }

    /// Warns if the new class has too little effect, because a locked vault shows only files in searchable directories.
    private func warnIfHidden(_ path: FilePath, _ newClass: ProtectionClass) {
        guard [.untilFirstUnlock, .none, .inbox].contains(newClass), var above = try? ResolvedPath.of(path) else {
            return
        }
        while above.removeLastComponent(), let directory = try? Descriptor(path: above, flags: linux_O_PATH),
            let device = try? directory.status().st_dev, devices.contains(device),
            let value = try? ExtendedAttributes(directory).value(of: Self.attribute)
        {
            let name = String(decoding: value, as: UTF8.self)
            guard let found = ProtectionClass(name: name), !Self.isFound(newClass, in: found) else { continue }
            return Console.report(
                "warning: \(path.shown): while the vault is locked it is not found, because the directory \(above.shown) has "
                    + "the class \(name)")
        }
    }

    /// Returns true if an object of a class can be looked up in a locked directory of another class.
    private static func isFound(_ object: ProtectionClass, in directory: ProtectionClass) -> Bool {
        switch (object, directory) {
        case (_, .none), (.untilFirstUnlock, .untilFirstUnlock), (.inbox, .untilFirstUnlock), (.inbox, .inbox): true
        default: false
        }
    }

    /// - Parameter pinned: opened with O_PATH, so a rename cannot lead to another file.
    private mutating func visit(_ pinned: Descriptor, _ path: FilePath, kind: mode_t) throws(StoreError) {
        guard devices.contains(try pinned.status().st_dev) else {
            return fail(path, "not on a vaultfs mount (mount the vault, and name the path there)")
        }
        guard kind == S_IFREG || kind == S_IFDIR else { return fail(path, "neither a file nor a directory") }
        let attributes = ExtendedAttributes(pinned)
        if newClass == .inbox && kind == S_IFREG { return fail(path, "an inbox is a directory") }
        if let newClass {
            try attributes.set(Self.attribute, Array(newClass.name.utf8), flags: 0)
            show(path, newClass.name)
        } else {
            show(path, String(decoding: try attributes.value(of: Self.attribute), as: UTF8.self))
        }
        // Set a directory's class before it is read, so that new entries get the new class.
        if isRecursive && kind == S_IFDIR { try visitEntries(of: pinned, path) }
    }

    private mutating func visitEntries(of directory: Descriptor, _ path: FilePath) throws(StoreError) {
        for name in try directory.allEntries().sorted(by: { $0.lexicographicallyPrecedes($1) }) {
            let entryPath = path.appending(entry: name)
            do throws(StoreError) {
                let entry = try Descriptor(at: directory, name, flags: linux_O_PATH)
                let kind = try entry.status().st_mode & S_IFMT
                let isMeant = kind == S_IFDIR || kind == S_IFREG && newClass != .inbox
                if isMeant { try visit(entry, entryPath, kind: kind) }
            } catch {
                fail(entryPath, error)
            }
        }
    }

    private mutating func show(_ path: FilePath, _ name: String) {
        if isSilent {
            visited.append(Visited(path: path.string, class: name))
        } else if newClass == nil {
            print("\(name)  \(path.shown)")
        }
    }

    private mutating func fail(_ path: FilePath, _ error: StoreError) {
        fail(path, error.errno == Errno(rawValue: ENOKEY) ? "the vault is locked" : "\(error.errno)")
    }

    private mutating func fail(_ path: FilePath, _ reason: String) {
        hasFailed = true
        let what = newClass.map { "cannot set the class of \(path.shown) to \($0.name)" }
        Console.report("\(what ?? "cannot show the class of \(path.shown)"): \(reason)")
    }
}
