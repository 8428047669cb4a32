internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Puts objects of the current epoch in the place of those of the previous one. Any thread.
struct RekeyWorker {
    let shared: Rekeyer.Shared
    let objects: RekeyObjects
    /// What may be replaced though it has several names: the others are outside of the vault.
    let alone: Set<FileIdentity>

    /// Whatever fails is counted, or ends the work of all.
    func rekey(_ object: RekeyWalk.Object, _ workspace: Workspace) {
        do throws(StoreError) {
            try shared.check()
            try replace(object, workspace)
        } catch {
            shared.take(error, about: object.place.shownPath(of: object.entry))
        }
    }

    private func replace(_ object: RekeyWalk.Object, _ workspace: Workspace) throws(StoreError) {
        let directory = object.place.descriptor
        switch try objects.standing(of: object) {
        case .current: return
        case .foreign: shared.count { $0.foreign += 1 }
        case .damaged(let reason): throw .damaged(reason)
        case .previousFile where !isAlone(object), .previousLink where !isAlone(object): return
        case .previousFile(let reader, _):
            let temporary = try objects.temporaryEntry()
            try object.place.willChange()
            let old = try objects.makeFile(
                temporary, in: directory, from: reader, of: object, workspace
            ) { (count) throws(StoreError) in
                shared.count { $0.bytes += count }
                try shared.check()
            }
            try place(temporary, object)
            try objects.freeSlots(of: old, in: directory)
            shared.count { $0.files += 1 }
        case .previousLink(_, let target, let protectionClass):
            let temporary = try objects.temporaryEntry()
            try object.place.willChange()
            try objects.makeLink(
                temporary, in: directory, to: target, protectionClass, from: object.pin, object.status)
            try place(temporary, object)
            shared.count { $0.links += 1 }
        }
    }

    private func isAlone(_ object: RekeyWalk.Object) -> Bool {
        object.status.st_nlink == 1 || alone.contains(FileIdentity(object.status))
    }

    private func place(_ temporary: [UInt8], _ object: RekeyWalk.Object) throws(StoreError) {
        let directory = object.place.descriptor.fd
        do throws(StoreError) {
            try objects.before(.replaceEntry)
            try OpenDirectory.rename(temporary, from: directory, to: directory, as: object.entry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory, $0, 0) }
            throw error
        }
    }
}
