internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Goes through every object of a vault whose backing entry may be a name, in depth, following no link. One thread's.
struct RekeyWalk {
    /// What a walk meets that is not a directory.
    struct Object {
        let entry: [UInt8]
        let place: RekeyPlace
        /// O_PATH: what is opened later is what was looked at.
        let pin: Descriptor
        let status: stat

        var path: [[UInt8]] { place.path + [entry] }
    }

    private struct Frame {
        let place: RekeyPlace
        /// Those to come, the next last.
        var entries: [[UInt8]]
    }

    let notes: RekeyNotes
    /// Called with each directory before what is in it.
    var enter: (RekeyPlace) throws(StoreError) -> Void = { _ in }
    var visit: (Object) throws(StoreError) -> Void = { _ in }
    /// Called with each directory after what is in it.
    var leave: (RekeyPlace) throws(StoreError) -> Void = { _ in }
    /// Called with what could not be read.
    var failed: (_ shownPath: [UInt8], StoreError) throws(StoreError) -> Void

    func run() throws(StoreError) {
        let place = try RekeyPlace.root(notes)
        try enter(place)
        // A stack of our own: a tree may be deeper than ours.
        var stack = [Frame(place: place, entries: try place.descriptor.allEntries())]
        while let last = stack.indices.last {
            let place = stack[last].place
            guard let entry = stack[last].entries.popLast() else {
                stack.removeLast()
                try leave(place)
                continue
            }
            guard [.name, .longName].contains(EntryName.kind(of: entry)) else { continue }
            var inner: Frame?
            do throws(StoreError) {
                inner = try look(at: entry, in: place)
            } catch .system(.noSuchFileOrDirectory) {
                continue
            } catch {
                if RekeyNames.isFileSystems(entry, in: place.descriptor) { continue }
                try failed(place.shownPath(of: entry), error)
            }
            guard let inner else { continue }
            try enter(inner.place)
            stack.append(inner)
        }
    }

    /// Visits what is no directory, and opens what is.
    private func look(at entry: [UInt8], in place: RekeyPlace) throws(StoreError) -> Frame? {
        let pin = try Descriptor(at: place.descriptor.fd, entry, flags: linux_O_PATH)
        let status = try pin.status()
        guard status.st_mode & S_IFMT == S_IFDIR else {
            try visit(Object(entry: entry, place: place, pin: pin, status: status))
            return nil
        }
        let inner = try place.inner(entry)
        return Frame(place: inner, entries: try inner.descriptor.allEntries())
    }
}
