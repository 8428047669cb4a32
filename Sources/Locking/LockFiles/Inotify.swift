internal import Glibc
internal import SystemPackage

/// An inotify(7) instance. One thread.
struct Inotify: ~Copyable {
    let fd: Int32
    private let buffer: UnsafeMutableRawBufferPointer

    struct Event {
        /// The watch descriptor; -1 for an overflow of the queue.
        let watch: Int32
        let mask: UInt32
        /// The name of the entry in the directory watched, or empty when the event is about the directory itself.
        let name: UnsafeRawBufferPointer
    }

    /// nil where there is none to be had: EMFILE, ENOSYS.
    init?() {
        let fd = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
        guard fd >= 0 else { return nil }
        self.fd = fd
        buffer = .allocate(byteCount: 16384, alignment: MemoryLayout<inotify_event>.alignment)
    }

    deinit {
        close(fd)
        buffer.deallocate()
    }

    /// Watches the directory at `path`, or changes what is watched for if it is watched already: inotify_add_watch(2).
    /// - Throws: ENOTDIR too where a link is at `path`.
    func watch(_ path: FilePath, for mask: UInt32) throws(Errno) -> Int32 {
        let watch = path.withPlatformString { inotify_add_watch(fd, $0, mask | UInt32(IN_ONLYDIR | IN_DONT_FOLLOW)) }
        guard watch >= 0 else { throw Errno(rawValue: errno) }
        return watch
    }

    /// Ends a watch, which the kernel may have ended already.
    func remove(_ watch: Int32) {
        inotify_rm_watch(fd, watch)
    }

    /// Gives the events that are waiting, at most a buffer full, to `body`; call-scoped.
    func readEvents(_ body: (Event) -> Void) throws(Errno) {
        let count = read(fd, buffer.baseAddress, buffer.count)
        guard count >= 0 else {
            guard errno == EAGAIN || errno == EINTR else { throw Errno(rawValue: errno) }
            return
        }
        let header = MemoryLayout<inotify_event>.size
        var start = 0
        while start + header <= count {
            let event = buffer.loadUnaligned(fromByteOffset: start, as: inotify_event.self)
            let end = start + header + Int(event.len)
            guard end <= count else { return }
            // The name is padded with NULs.
            let padded = UnsafeRawBufferPointer(rebasing: buffer[(start + header)..<end])
            let name = UnsafeRawBufferPointer(rebasing: padded[..<(padded.firstIndex(of: 0) ?? padded.count)])
            body(Event(watch: event.wd, mask: event.mask, name: name))
            start = end
        }
    }
}
