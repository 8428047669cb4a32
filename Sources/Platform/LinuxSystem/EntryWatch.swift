package import Glibc

/// The events in bytes read from an inotify(7) descriptor, each with its name without the padding.
package struct InotifyEvents: Sequence, IteratorProtocol {
    private var rest: Slice<UnsafeRawBufferPointer>

    package init(_ bytes: Slice<UnsafeRawBufferPointer>) { rest = bytes }

    package mutating func next() -> (event: inotify_event, name: Slice<UnsafeRawBufferPointer>)? {
        let header = MemoryLayout<inotify_event>.size
        guard rest.count >= header else { return nil }
        let event = rest.loadUnaligned(as: inotify_event.self)
        let name = rest.dropFirst(header).prefix(Int(event.len)).prefix { $0 != 0 }
        rest = rest.dropFirst(header + Int(event.len))
        return (event, name)
    }
}

/// Reports changes of a directory's entry, but not those by other machines. Any thread.
package struct EntryWatch: Sendable {
    /// Readable when any entry of the directory was changed.
    package let descriptor: Descriptor
    private let entry: [UInt8]

    /// - Parameter changes: of inotify(7), for example a replacement by a rename.
    /// - Throws: `.system` with errno, such as `EMFILE`.
    package init(_ entry: Component, in directory: Descriptor, changes: Int32 = IN_MOVED_TO) throws(StoreError) {
        descriptor = Descriptor(owning: try retrying { inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC)) })
        self.entry = entry.bytes
        try retrying { [descriptor] in
            inotify_add_watch(descriptor.fd, "/proc/self/fd/\(directory.fd)", UInt32(changes | Int32(IN_ONLYDIR)))
        }
    }

    /// Reads waiting events, at most one buffer, so that a busy directory cannot hold the caller. Returns true if one
    /// may concern the entry.
    package func readChange() -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            let count = read(descriptor.fd, buffer.baseAddress, buffer.count)
            return InotifyEvents(UnsafeRawBufferPointer(buffer)[..<max(0, count)]).contains { _, name in
                // An event without a name says that others were lost. A store may ignore case.
                name.isEmpty || name.elementsEqual(entry, by: { $0 | 0x20 == $1 | 0x20 })
            }
        }
    }
}
