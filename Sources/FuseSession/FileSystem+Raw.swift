internal import CFuse
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// An open file or directory as the kernel holds it for us: one reference, as a number.
struct RawHandle {
    private let pointer: UnsafeRawPointer

    init(_ info: UnsafeMutablePointer<fuse_file_info>?) throws(StoreError) {
        guard let info, let pointer = UnsafeRawPointer(bitPattern: UInt(info.pointee.fh)) else {
            throw .system(.badFileDescriptor)
        }
        self.pointer = pointer
    }

    func object<Object: AnyObject>(_ type: Object.Type) -> Object {
        Unmanaged<Object>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Takes the kernel's reference back.
    func take<Object: AnyObject>(_ type: Object.Type) -> Object {
        Unmanaged<Object>.fromOpaque(pointer).takeRetainedValue()
    }

    static func number(retaining object: AnyObject) -> UInt64 {
        UInt64(UInt(bitPattern: Unmanaged.passRetained(object).toOpaque()))
    }
}

/// The operations on what is open, for callbacks that have numbers and know no types.
extension FileSystem {
    private func own(_ buffers: any WorkerBuffers) -> Workspace {
        // Made by this file system's `makeWorkspace`.
        unsafeDowncast(buffers, to: Workspace.self)
    }

    func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: RawHandle?, buffers: any WorkerBuffers
    ) throws(StoreError) -> stat {
        try change(id, changes, handle: handle?.object(File.self), workspace: own(buffers))
    }

    // MARK: Files

    /// Opens, and answers the request: now, or later and from another thread.
    func open(_ id: NodeID, _ request: Request, _ info: fuse_file_info) throws(StoreError) {
        let caller = request.caller(withGroups: info.flags & O_TRUNC != 0)
        let opened = try open(
            id, flags: info.flags, for: caller, workspace: own(request.server.workspace)
        ) {
            let pending = request.server.pendingOpens.add(request)
            return { [self] result in
                pending.answer { request in
                    do throws(StoreError) {
                        reply(try result.get(), to: request, info)
                    } catch {
                        request.server.log(error, "open")
                        fuse_reply_err(request.raw, error.errno.rawValue)
                    }
                } orElse: {
                    if case .success(let file) = result { release(file) }
                }
            }
        }
        if let opened { reply(opened, to: request, info) }
    }

    private func reply(_ file: File, to request: Request, _ info: fuse_file_info) {
        var info = info
        give(file, &info, request.server)
        if fuse_reply_open(request.raw, &info) != 0 {
            // The program was killed meanwhile: no release will come.
            release(takeBack(info, File.self))
        }
    }

    /// Creates, opens, and answers the request.
    func create(
        _ name: [UInt8], in parent: NodeID, mode: mode_t, _ request: Request, _ info: fuse_file_info
    ) throws(StoreError) {
        let created = try create(name, in: parent, mode: mode, flags: info.flags, for: request.creator())
        var info = info
        give(created.handle, &info, request.server)
        var parameters = request.parameters(created.entry)
        if fuse_reply_create(request.raw, &parameters, &info) != 0 {
            release(takeBack(info, File.self))
            forget(created.entry.id, count: 1)
        }
    }

    private func give(_ file: File, _ info: inout fuse_file_info, _ server: FuseServer) {
        info.fh = RawHandle.number(retaining: file)
        switch pageCaching(of: file) {
        case _ where server.bypassesKernelCache: info.direct_io = 1
        case .bypass: info.direct_io = 1
        case .keep: info.keep_cache = 1
        case .drop: break
        }
    }

    private func takeBack<Object: AnyObject>(_ info: fuse_file_info, _ type: Object.Type) -> Object {
        guard let pointer = UnsafeRawPointer(bitPattern: UInt(info.fh)) else {
            preconditionFailure("internal error: a handle that was just made")
        }
        return Unmanaged<Object>.fromOpaque(pointer).takeRetainedValue()
    }

    func releaseFile(_ handle: RawHandle) {
        release(handle.take(File.self))
    }

    @inline(__always)
    func read(_ handle: RawHandle, at offset: UInt64, size: Int, buffers: any WorkerBuffers) throws(StoreError)
        -> UnsafeRawBufferPointer
    {
        let workspace = own(buffers)
        let reply = workspace.reply
        let buffer = UnsafeMutableRawBufferPointer(rebasing: reply[..<min(size, reply.count)])
        let count = try read(handle.object(File.self), at: offset, into: buffer, workspace: workspace)
        return UnsafeRawBufferPointer(rebasing: buffer[..<count])
    }

    func write(
        _ handle: RawHandle, _ data: UnsafeRawBufferPointer, at offset: UInt64, isWriteBack: Bool,
        buffers: any WorkerBuffers
    ) throws(StoreError) -> Int {
        try write(handle.object(File.self), data, at: offset, isWriteBack: isWriteBack, workspace: own(buffers))
    }

    func synchronizeFile(_ handle: RawHandle, dataOnly: Bool) throws(StoreError) {
        try synchronize(handle.object(File.self), dataOnly: dataOnly)
    }

    func allocate(
        _ handle: RawHandle, mode: Int32, range: Range<UInt64>, buffers: any WorkerBuffers
    ) throws(StoreError) {
        try allocate(handle.object(File.self), mode: mode, range: range, workspace: own(buffers))
    }

    func seek(_ handle: RawHandle, from offset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        try seek(handle.object(File.self), from: offset, toHole: toHole)
    }

    func copy(
        from source: RawHandle, at sourceOffset: UInt64, to destination: RawHandle, at destinationOffset: UInt64,
        count: Int, buffers: any WorkerBuffers
    ) throws(StoreError) -> Int {
        try copy(
            from: source.object(File.self), at: sourceOffset, to: destination.object(File.self), at: destinationOffset,
            count: count, workspace: own(buffers))
    }

    // MARK: Directories

    /// Opens, and answers the request.
    func openDirectory(_ id: NodeID, _ request: Request, _ info: fuse_file_info) throws(StoreError) {
        var info = info
        let directory = try openDirectory(id)
        info.fh = RawHandle.number(retaining: directory)
        if fuse_reply_open(request.raw, &info) != 0 { release(takeBack(info, Directory.self)) }
    }

    func releaseDirectory(_ handle: RawHandle) {
        release(handle.take(Directory.self))
    }

    func synchronizeDirectory(_ handle: RawHandle, dataOnly: Bool) throws(StoreError) {
        try synchronize(handle.object(Directory.self), dataOnly: dataOnly)
    }

    func list(
        _ handle: RawHandle, from offset: Int64, withAttributes: Bool, _ take: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try list(handle.object(Directory.self), from: offset, withAttributes: withAttributes, take)
    }
}
