internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// rename(2) over an existing object, on stores where an open file cannot be replaced.
///
/// SMB refuses such a rename while a descriptor of the old file is open, here or on another machine. The kernel's client then
/// removes the old file (cifs_rename2 in fs/smb/client/inode.c), so it disappears when its last descriptor is closed, although
/// the call has failed.
extension Descriptor {
    /// The errors of a rename that was refused because the old file is open.
    private static let refusals: [StoreError] = [
        .system(.permissionDenied), .system(.resourceBusy), .system(.textFileBusy),
    ]
    /// Timeout for those who have the old file open. There is nothing to await: the store notifies of no close, least of all on
    /// another machine. In a mount only `vaultfs protect` replaces so, and a lock waits longer for running requests.
    private static let timeout: Duration = .seconds(5)

    /// Gives `entry` to the object `temporary`, which is complete, by rename(2).
    /// Tries again for some seconds if the store refuses it. If it fails, `temporary` is removed once the old object was
    /// seen under its name. If the store has removed that, `temporary` is kept as `entry` and `keptAddition`.
    /// - Parameter onFailure: called after each failed try. Closes the old object, if the caller has it open. If it throws,
    ///   there is no other try.
    /// - Throws: the store's error; `.damaged` if the old object is gone. The text says which name the new one has.
    package func replace(
        _ entry: Component, by temporary: Component, onFailure: () throws(StoreError) -> Void = {}
    ) throws(StoreError) {
        let deadline = ContinuousClock.now + Self.timeout
        do throws(StoreError) {
            while true {
                do throws(StoreError) { return try rename(temporary, as: entry) } catch {
                    try onFailure()
                    guard Self.refusals.contains(error), ContinuousClock.now < deadline else { throw error }
                }
                usleep(100_000)
            }
        } catch {
            if isThere(entry) {
                removeQuietly(temporary)
                throw error
            }
            let kept = keep(temporary, insteadOf: entry)
            let (shown, shownKept) = (RekeyDirectory.shown(entry), RekeyDirectory.shown(kept))
            throw .damaged(
                "\(shown) was removed by the store, which refuses to replace it (\(error.reason)); its new version is "
                    + "\(shownKept): rename that to \(shown)")
        }
    }

    /// Returns true if the name leads to an object. An object that the store is about to remove cannot be opened.
    private func isThere(_ entry: Component) -> Bool {
        do throws(StoreError) {
            _ = try Descriptor(at: self, entry, flags: O_RDONLY | O_NONBLOCK)
            return true
        } catch .system(let errno)
            where [.permissionDenied, .tooManySymbolicLinkLevels, .noSuchAddressOrDevice].contains(errno)
        {
            return (try? status(of: entry)) != nil
        } catch {
            return false
        }
    }

    /// Gives a complete object a name under which no mount removes it, durably. Returns the name that it has.
    private func keep(_ temporary: Component, insteadOf entry: Component) -> Component {
        guard let kept = try? entry + Self.keptAddition(),
            (try? rename(temporary, as: kept, flags: linux_RENAME_NOREPLACE)) != nil
        else { return temporary }
        try? openedForReading().synchronize(dataOnly: false)
        return kept
    }

    static let keptPrefix: Component = ".kept-"

    /// An addition that makes a file's entry that of a conflict copy, which a mount shows and nothing removes.
    static func keptAddition() throws(StoreError) -> Component {
        keptPrefix + (try Component(Array(VaultDirectory.randomDigits().prefix(8))))
    }
}

extension StoreTraits {
    /// Tries everything in a store that is written.
    /// - Throws: an error of libcrypto.
    package init(probing root: Descriptor) throws(StoreError) {
        self.init(probing: root, entry: Self.prefix + (try VaultDirectory.randomDigits()))
    }

    /// True if the probe has reached its last step.
    var isComplete: Bool { replacesOpenFiles != nil }

    /// True if rename(2) over an open file may fail. If the probe could not find that out, other machines' stores may.
    func refusesReplacingOpenFiles(in root: Descriptor) -> Bool {
        !(replacesOpenFiles ?? FileSystemType(of: root).reportsAllChanges)
    }
}
