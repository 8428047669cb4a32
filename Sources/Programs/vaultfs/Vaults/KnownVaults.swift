internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// A vault that this user has made or mounted. The names of the fields are those of the file and of `list --json`.
struct KnownVault: Codable, Equatable, Sendable {
    /// The vault's id, 32 hexadecimal digits. A copy of a vault has the same.
    let id: String
    /// A short name, which commands take instead of the path.
    var label: String
    var path: String
    /// The mountpoint of the last mount.
    var mountpoint: String?
    /// The options of the last mount, as on a command line, without those of its secret.
    var options: [String]?
}

/// The vaults that this user has made or mounted: `vaultfs/vaults.json` in the directory of XDG_CONFIG_HOME (XDG Base
/// Directory Specification). It has no secret. Pure, except for `read`, `update` and what these call.
struct KnownVaults: Codable, Equatable {
    /// The most bytes of a label: enough for a word or two, and for a column of a table.
    static let longestLabel = 64
    private static let currentVersion = 1

    private(set) var version = currentVersion
    private(set) var vaults: [KnownVault] = []

    subscript(label: String) -> KnownVault? { vaults.first { $0.label == label } }

    /// Adds a vault, or changes the one at this path.
    /// - Parameters:
    ///   - label: nil to keep the old one, or to make one of the path.
    ///   - isThere: returns true if the vault of an entry is still at its path. Otherwise the new path is where it was
    ///     moved to.
    ///   - change: sets mountpoint and options.
    /// - Throws: code `usage` if another vault has the label.
    mutating func remember(
        id: String, path: String, label: String? = nil, isThere: (KnownVault) -> Bool,
        _ change: (inout KnownVault) -> Void = { _ in }
    ) throws(CommandFailure) {
        // Another vault was made at the path of an old one.
        vaults.removeAll { $0.path == path && $0.id != id }
        let index = index(id: id, path: path, isThere: isThere)
        if let label, let other = vaults.firstIndex(where: { $0.label == label }), other != index {
            throw Self.taken(label, by: vaults[other])
        }
        var vault =
            index.map { vaults.remove(at: $0) }
            ?? KnownVault(id: id, label: label ?? unusedLabel(for: path), path: path)
        vault.path = path
        vault.label = label ?? vault.label
        change(&vault)
        vaults.append(vault)
        vaults.sort { ($0.label, $0.path) < ($1.label, $1.path) }
    }

    /// Returns the entry of a vault: the one at this path, or the one from whose path the vault has moved here.
    func vault(id: String, path: String, isThere: (KnownVault) -> Bool) -> KnownVault? {
        index(id: id, path: path, isThere: isThere).map { vaults[$0] }
    }

    private func index(id: String, path: String, isThere: (KnownVault) -> Bool) -> Int? {
        let same = vaults.indices.filter { vaults[$0].id == id }
        return same.first { vaults[$0].path == path } ?? same.first { !isThere(vaults[$0]) }
    }

    static func taken(_ label: String, by other: KnownVault) -> CommandFailure {
        CommandFailure(
            .usage, "the label '\(shown(label.utf8))' is that of \(shown(other.path.utf8)): choose another one")
    }

    /// Removes the vault with this label. Returns false if there is none.
    mutating func forget(_ label: String) -> Bool {
        let count = vaults.count
        vaults.removeAll { $0.label == label }
        return vaults.count < count
    }

    /// Returns the last name of a path, with a number if another vault has it.
    private func unusedLabel(for path: String) -> String {
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        var label = name.utf8.count <= Self.longestLabel && Self.isValid(name) ? name : "vault"
        var number = 2
        while self[label] != nil {
            label = "\(name.utf8.count < Self.longestLabel - 4 && Self.isValid(name) ? name : "vault")-\(number)"
            number += 1
        }
        return label
    }

    /// Returns false for words that cannot be a label, because a command would take them for an option or a path.
    static func isValid(_ label: String) -> Bool {
        !label.isEmpty && label.utf8.count <= longestLabel && !label.hasPrefix("-") && !label.contains("/")
            && ![".", ".."].contains(label) && label.withoutControlCharacters == label
    }
}

extension KnownVaults {
    private static let entry: Component = "vaults.json"
    private static let newEntry: Component = "vaults.json.new"
    /// Far more than a person has vaults.
    private static let largestFile = 1 << 20
    /// Time for another command to end its change.
    private static let timeout: Duration = .seconds(2)

    /// Returns the list, which is empty without a file.
    /// - Throws: code `failure`, with the file's path.
    static func read() throws(CommandFailure) -> KnownVaults {
        guard let directory = try directory(isMade: false) else { return KnownVaults() }
        return try read(directory)
    }

    /// Changes the list. Does nothing if this user has no place for it.
    /// - Throws: code `failure`, with the file's path; the error of `change`.
    static func update(_ change: (inout KnownVaults) throws(CommandFailure) -> Void) throws(CommandFailure) {
        guard let directory = try directory(isMade: true) else { return }
        let deadline = ContinuousClock.now + timeout
        // The lock ends with the descriptor.
        while flock(directory.descriptor.fd, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK, ContinuousClock.now < deadline else {
                throw CommandFailure(.failure, "\(directory.file.shown): another vaultfs is changing it")
            }
            usleep(10_000)
        }
        var list = try read(directory)
        let before = list
        try change(&list)
        if list == before { return }
        let bytes = Array(try Console.json(list).utf8)
        try CommandFailure.wrapping("cannot write", directory.file, write(bytes, in: directory.descriptor))
    }

    private static func write(_ bytes: [UInt8], in directory: Descriptor) throws(StoreError) {
        let flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW
        let file = try Descriptor(at: directory, newEntry, flags: flags, mode: 0o600)
        try file.write(bytes, at: 0)
        try file.synchronize(dataOnly: false)
        try directory.rename(newEntry, to: directory, as: entry)
        try directory.synchronize(dataOnly: false)
    }

    private static func read(_ directory: (descriptor: Descriptor, file: FilePath)) throws(CommandFailure)
        -> KnownVaults
    {
        let bytes: [UInt8]?
        do throws(StoreError) {
            // O_NONBLOCK, because it may be a fifo.
            let file = try Descriptor(at: directory.descriptor, entry, flags: O_RDONLY | O_NONBLOCK)
            bytes = try file.readToEnd(limit: largestFile)
        } catch .system(.noSuchFileOrDirectory) {
            return KnownVaults()
        } catch {
            throw CommandFailure(.failure, "cannot read \(directory.file.shown): \(error.reason)")
        }
        let advice = "move it away: vaultfs then begins a new list"
        guard let bytes, let list = try? JSONDecoder().decode(KnownVaults.self, from: Data(bytes)) else {
            throw CommandFailure(.failure, "\(directory.file.shown) is not a list of vaults: \(advice)")
        }
        guard list.version == currentVersion else {
            throw CommandFailure(.failure, "\(directory.file.shown) is of another version of vaultfs: \(advice)")
        }
        return list
    }

    /// Returns the directory of the list, or nil if it would not be this user's own: for a service without a
    /// home, or root with the HOME of a user.
    /// - Parameter isMade: true to make a missing one.
    private static func directory(isMade: Bool) throws(CommandFailure) -> (descriptor: Descriptor, file: FilePath)? {
        func variable(_ name: String) -> FilePath? {
            getenv(name).map { FilePath(platformString: $0) }.flatMap { $0.isAbsolute ? $0 : nil }
        }
        let base: FilePath
        if let given = variable("XDG_CONFIG_HOME") {
            base = given
        } else if let home = variable("HOME"), isOwn(home) {
            base = home.appending(".config")
        } else {
            return nil
        }
        let path = base.appending("vaultfs")
        if isMade {
            for directory in [base, path] { _ = directory.withPlatformString { mkdir($0, 0o700) } }
        }
        guard isOwn(base) else { return nil }
        do throws(StoreError) {
            let descriptor = try Descriptor(path: path, flags: O_RDONLY | O_DIRECTORY)
            return (descriptor, path.appending(entry: entry))
        } catch .system(.noSuchFileOrDirectory) where !isMade {
            return nil
        } catch {
            throw CommandFailure(.failure, "cannot open \(path.shown): \(error.reason)")
        }
    }

    private static func isOwn(_ directory: FilePath) -> Bool {
        var status = stat()
        return directory.withPlatformString { stat($0, &status) } == 0 && status.st_mode & S_IFMT == S_IFDIR
            && status.st_uid == geteuid()
    }
}

extension KnownVaults {
    /// Remembers a vault. A failure is a warning, because the vault itself is well.
    static func remember(
        _ directory: VaultDirectory, label: String?, _ change: (inout KnownVault) -> Void = { _ in }
    ) {
        let bytes = directory.path.bytes
        // JSON has no other bytes.
        guard let path = String(validating: bytes, as: UTF8.self) else { return }
        let id = directory.configuration.vault.hex
        do throws(CommandFailure) {
            try update { (list) throws(CommandFailure) in
                try list.remember(id: id, path: path, label: label, isThere: isThere, change)
            }
        } catch {
            Console.report("warning: the list of your vaults was not changed: \(error.message)")
        }
    }

    /// Returns a vault's entry, also if the vault has moved since.
    /// - Throws: code `failure` if the list cannot be read.
    static func entry(of directory: VaultDirectory) throws(CommandFailure) -> KnownVault? {
        guard let path = String(validating: directory.path.bytes, as: UTF8.self) else { return nil }
        return try read().vault(id: directory.configuration.vault.hex, path: path, isThere: isThere)
    }

    /// Returns true if the vault is at its path, or if its disk does not answer.
    private static func isThere(_ vault: KnownVault) -> Bool {
        withinTime(milliseconds: 1000) {
            (try? VaultDirectory.open(FilePath(vault.path)))?.configuration.vault.hex == vault.id
        } ?? true
    }

    /// Returns the vault with the label that a person has typed instead of a path.
    /// - Throws: code `failure` if the list cannot be read.
    static func vault(typed: FilePath) throws(CommandFailure) -> KnownVault? {
        guard let label = String(validating: typed.bytes, as: UTF8.self), isValid(label) else { return nil }
        return try read()[label]
    }
}
