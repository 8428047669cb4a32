internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Shows or sets the protection class of what `protect` names and, if asked, of all below it, by the attribute
/// `user.vaultfs.class`. What fails is reported, and the rest goes on.
struct ProtectionTree {
    /// The names of the fields are the interface of `--json`.
    struct Visited: Encodable {
        let path: String
        let `class`: String
    }

    private static let attribute = Array("user.vaultfs.class".utf8)

    /// Devices of vaultfs mounts. To others the attribute is like any, and setting it would mean nothing.
    private let devices: Set<dev_t>
    /// Nil to show.
    private let newClass: ProtectionClass?
    private let isRecursive: Bool
    private let isSilent: Bool

    private(set) var visited: [Visited] = []
    private(set) var hasFailed = false

    /// - Parameter isSilent: prints no lines; what was visited is kept instead.
    init(mounts: MountTable, newClass: ProtectionClass?, isRecursive: Bool, isSilent: Bool) {
        devices = Set(mounts.entries.lazy.filter(\.isVault).compactMap(\.device))
        self.newClass = newClass
        self.isRecursive = isRecursive
        self.isSilent = isSilent
    }

    /// A path that a person named: a link there is followed, as by setfattr(1).
    mutating func visit(_ path: FilePath) {
        do throws(StoreError) {
            let fd = try retrying { path.withPlatformString { open($0, linux_O_PATH | O_CLOEXEC) } }
            let pinned = Descriptor(owning: fd)
            try visit(pinned, path, kind: try pinned.status().st_mode & S_IFMT)
        } catch {
            fail(path, error)
        }
    }

    /// - Parameter pinned: O_PATH: whatever becomes of its name, this is what is looked at and changed.
    private mutating func visit(_ pinned: Descriptor, _ path: FilePath, kind: mode_t) throws(StoreError) {
        guard devices.contains(try pinned.status().st_dev) else {
            return fail(path, "not on a vaultfs mount (mount the vault, and name the path there)")
        }
        guard kind == S_IFREG || kind == S_IFDIR else { return fail(path, "neither a file nor a directory") }
        let attributes = ExtendedAttributes(pinned)
        if let newClass {
            try attributes.set(Self.attribute, Array(newClass.name.utf8), flags: 0)
            note(path, newClass.name)
        } else {
            note(path, String(decoding: try attributes.value(of: Self.attribute), as: UTF8.self))
        }
        // A directory first: what is made in it from now on is of the new class.
        if isRecursive && kind == S_IFDIR { try visitEntries(of: pinned, path) }
    }

    private mutating func visitEntries(of directory: Descriptor, _ path: FilePath) throws(StoreError) {
        for name in try Self.names(in: directory) {
            let entryPath = path.appending(entry: name)
            do throws(StoreError) {
                let entry = try Descriptor(at: directory.fd, name, flags: linux_O_PATH)
                let kind = try entry.status().st_mode & S_IFMT
                if kind == S_IFREG || kind == S_IFDIR { try visit(entry, entryPath, kind: kind) }
            } catch {
                fail(entryPath, error)
            }
        }
    }

    /// All names, sorted: read to the end before anything is changed, and no descriptor stays open for it.
    private static func names(in directory: Descriptor) throws(StoreError) -> [[UInt8]] {
        var reader = DirectoryReader(
            try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY))
        var names: [[UInt8]] = []
        while let entry = try reader.next() { names.append(entry.name) }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }

    private mutating func note(_ path: FilePath, _ name: String) {
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

extension FilePath {
    /// The path of an entry whose name is any bytes.
    fileprivate func appending(entry name: [UInt8]) -> FilePath {
        let slash = UInt8(ascii: "/")
        return FilePath(bytes: bytes + (bytes.last == slash ? [] : [slash]) + name)
    }
}
