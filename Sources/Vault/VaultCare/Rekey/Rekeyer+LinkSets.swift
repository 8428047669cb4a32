internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Files and links with several names in the vault.
extension Rekeyer {
    /// The files and links of the previous epoch that have several names: the number of names, and the paths of
    /// those in the vault. With one path, the others are outside of the vault.
    typealias Names = [FileIdentity: (count: Int, paths: [[[UInt8]]])]

    /// Removes each object of which a name may be in what could not be read: replacing the others would part it from them.
    func checkNames(_ names: inout Names) {
        let before = totals
        for (identity, (count, paths)) in names where count > paths.count {
            guard before.problems == 0 else {
                names[identity] = nil
                problem(
                    shownPath(paths[0]),
                    "\(count - paths.count) of its \(count) names may be in what could not be read",
                    isDenied: before.denied == before.problems)
                continue
            }
            self.count { $0.elsewhere += 1 }
        }
    }

    /// Replaces them one after the other, by steps that keep all names of an object together.
    func rekeyLinkSets(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for (_, paths) in names.values where paths.count > 1 {
            try check()
            showProgress()
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                try checkStep(error)
                handle(error, about: shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[[UInt8]]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let object = try RekeyObject(entry, in: steps.directory(at: paths[0].dropLast()))
        let temporary = try VaultDirectory.temporaryEntry()
        guard let old = try copy(object, try kind(of: object), to: temporary, in: store.root, workspace) else { return }
        do throws(StoreError) {
            try steps.carryOut(.links(RekeyIntent.Links(old: old, temporary: temporary, paths: paths)))
        } catch {
            // An incomplete step needs the copy.
            if try !RekeySteps.isIncomplete(in: store.root) { store.root.removeQuietly(temporary) }
            throw error
        }
        count(old)
    }

    /// The path of an object for messages, of backing entries if the directory cannot be opened.
    private func shownPath(_ path: [[UInt8]]) -> [UInt8] {
        guard let entry = path.last, let directory = try? steps.directory(at: path.dropLast()) else {
            return Array(path.joined(separator: [UInt8(ascii: "/")]))
        }
        return directory.shownPath(of: entry)
    }
}
