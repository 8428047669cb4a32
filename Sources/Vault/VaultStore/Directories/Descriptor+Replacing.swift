internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// rename(2) over an existing object, on stores where an open file cannot be replaced.
///
/// SMB refuses such a rename while a descriptor of the old file is open, here or on another machine. The kernel's
/// client then removes the old file (cifs_rename2 in fs/smb/client/inode.c), so it disappears when its last descriptor
/// is closed, although the call has failed.
extension Descriptor {
    /// The errors of a rename refused because the old file is open.
    private static let refusals: [StoreError] = [
        .system(.permissionDenied), .system(.resourceBusy), .system(.textFileBusy),
    ]
    /// Timeout for others to close the old file. Only repeated tries can detect this, because the store does not notify
    /// of a close, least of all on another machine. In a mount only `vaultfs protect` replaces like this, and a lock
    /// waits longer for running requests.
    private static let timeout: Duration = .seconds(5)

    /// Renames the complete object `temporary` to `entry` by rename(2). If the store refuses, tries again for some
    /// seconds. After a failure, removes `temporary` if the old object still has its name. If the store has removed the
    /// old one, keeps `temporary` as `entry` and `keptAddition`.
    /// - Parameter onFailure: called after each failed try. Closes the old object, if the caller has it open. An error
    ///   of it ends the tries.
    /// - Throws: the store's error; `.damaged` with the new object's name if the old one is lost.
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

    /// Returns true if the name leads to an object. False for one that the store is about to remove, which cannot be
    /// opened.
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

    /// Renames a complete object, durably, so that mounts keep it. Returns its name.
    private func keep(_ temporary: Component, insteadOf entry: Component) -> Component {
        guard let kept = try? entry + Self.keptAddition(),
            (try? rename(temporary, as: kept, flags: linux_RENAME_NOREPLACE)) != nil
        else { return temporary }
        try? openedForReading().synchronize(dataOnly: false)
        return kept
    }

    static let keptPrefix: Component = ".kept-"

    /// Returns an addition that makes a file's entry a conflict copy's. Mounts show such a file, and never remove it.
    static func keptAddition() throws(StoreError) -> Component {
        keptPrefix + (try Component(Array(VaultDirectory.randomDigits().prefix(8))))
    }
}

extension StoreTraits {
    /// Finds out the traits of a store by writing to it.
    /// - Throws: an error of libcrypto.
    package init(probing root: Descriptor) throws(StoreError) {
        self.init(probing: root, entry: Self.prefix + (try VaultDirectory.randomDigits()))
    }

    /// True if the probe has reached its last step.
    var isComplete: Bool { replacesOpenFiles != nil }

    /// True if rename(2) over an open file may fail. If the probe could not tell, true for stores of other machines.
    func refusesReplacingOpenFiles(in root: Descriptor) -> Bool {
        !(replacesOpenFiles ?? FileSystemType(of: root).reportsAllChanges)
    }
}
