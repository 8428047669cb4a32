internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

typealias FileInfo = UnsafeMutablePointer<fuse_file_info>

/// The object to which `fh` is a reference that the kernel holds for us.
@inline(__always)
func object<Object: AnyObject>(_ info: FileInfo?, _: Object.Type) throws(StoreError) -> Unmanaged<Object> {
    guard let info, let pointer = UnsafeRawPointer(bitPattern: UInt(info.pointee.fh)) else {
        throw .system(.badFileDescriptor)
    }
    return .fromOpaque(pointer)
}

/// A new reference to an object, for `fh`.
func reference(_ object: AnyObject) -> UInt64 {
    UInt64(UInt(bitPattern: Unmanaged.passRetained(object).toOpaque()))
}

/// The operations on open files. A callback of libfuse cannot name a file system's types, so it calls these.
extension FileSystem {
    @inline(__always)
    private func file(_ info: FileInfo?) throws(StoreError) -> File {
        try object(info, File.self).takeUnretainedValue()
    }

    /// The calling worker's workspace.
    @inline(__always)
    private func workspace(_ request: Request) -> Workspace {
        // This file system's `makeWorkspace` made it.
        unsafeDowncast(request.server.worker.workspace, to: Workspace.self)
    }

    func change(
        _ request: Request, _ id: NodeID, _ changes: AttributeChanges, _ info: FileInfo?
    ) throws(StoreError) -> stat {
        try change(id, changes, handle: info == nil ? nil : try file(info), workspace: workspace(request))
    }

    /// Opens and replies, either now or later from another thread.
    fileprivate func open(_ request: Request, _ id: NodeID, _ info: fuse_file_info) throws(StoreError) {
        let caller = request.caller(withGroups: info.flags & O_TRUNC != 0)
        let opened = try open(id, flags: info.flags, for: caller, workspace: workspace(request)) {
            let pending = PendingOpen(request)
            return { [self] result in
                guard pending.take() else {
                    if case .success(let file) = result { release(file) }
                    return
                }
                do throws(StoreError) {
                    reply(try result.get(), to: pending.request, info)
                } catch {
                    pending.request.server.log(error, "open")
                    fuse_reply_err(pending.request.raw, error.errno.rawValue)
                }
            }
        }
        if let opened { reply(opened, to: request, info) }
    }

    private func reply(_ file: File, to request: Request, _ info: fuse_file_info) {
        var info = fileInfo(info, for: file, request)
        // A program that was killed meanwhile sends no release.
        if fuse_reply_open(request.raw, &info) != 0 { try? releaseFile(&info) }
    }

    fileprivate func create(
        _ request: Request, _ name: [UInt8], in parent: NodeID, mode: mode_t, _ info: fuse_file_info
    ) throws(StoreError) {
        let created = try create(name, in: parent, mode: mode, flags: info.flags, for: request.creator())
        var info = fileInfo(info, for: created.handle, request)
        var parameters = request.parameters(created.entry)
        if fuse_reply_create(request.raw, &parameters, &info) != 0 {
            try? releaseFile(&info)
            forget(created.entry.id, count: 1)
        }
    }

    private func fileInfo(_ info: fuse_file_info, for file: File, _ request: Request) -> fuse_file_info {
        var info = info
        info.fh = reference(file)
        switch pageCaching(of: file) {
        case _ where request.server.bypassesKernelCache: info.direct_io = 1
        case .bypass: info.direct_io = 1
        case .keep: info.keep_cache = 1
        case .drop: break
        }
        return info
    }

    fileprivate func releaseFile(_ info: FileInfo?) throws(StoreError) {
        release(try object(info, File.self).takeRetainedValue())
    }

    fileprivate func read(_ request: Request, _ info: FileInfo?, at offset: off_t, size: Int) throws(StoreError) {
        let workspace = workspace(request)
        let buffer = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<min(size, workspace.reply.count)])
        let count = try read(try file(info), at: UInt64(offset), into: buffer, workspace: workspace)
        request.reply(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
    }

    fileprivate func write(
        _ request: Request, _ info: FileInfo?, _ data: UnsafeRawBufferPointer, at offset: off_t
    ) throws(StoreError) {
        let count = try write(
            try file(info), data, at: UInt64(offset), isWriteBack: info?.pointee.writepage == 1,
            workspace: workspace(request))
        fuse_reply_write(request.raw, count)
    }

    fileprivate func synchronizeFile(_ info: FileInfo?, dataOnly: Bool) throws(StoreError) {
        try synchronize(try file(info), dataOnly: dataOnly)
    }

    fileprivate func allocate(
        _ request: Request, _ info: FileInfo?, mode: Int32, range: Range<UInt64>
    ) throws(StoreError) {
        try allocate(try file(info), mode: mode, range: range, workspace: workspace(request))
    }

    fileprivate func seek(_ info: FileInfo?, from offset: UInt64, toHole: Bool) throws(StoreError) -> UInt64 {
        try seek(try file(info), from: offset, toHole: toHole)
    }

    fileprivate func copy(
        _ request: Request, from source: FileInfo?, at sourceOffset: off_t, to destination: FileInfo?,
        at destinationOffset: off_t, count: Int
    ) throws(StoreError) -> Int {
        try copy(
            from: try file(source), at: UInt64(sourceOffset), to: try file(destination),
            at: UInt64(destinationOffset), count: count, workspace: workspace(request))
    }
}

func onOpen(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: FileInfo?) {
    Request.serve(raw, "open") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        try request.fileSystem.open(request, NodeID(rawValue: id), info.pointee)
    }
}

func onCreate(
    _ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ mode: mode_t, _ info: FileInfo?
) {
    Request.serve(raw, "create") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        do throws(StoreError) {
            try request.fileSystem.create(request, bytes(name), in: NodeID(rawValue: parent), mode: mode, info.pointee)
        } catch .system(.fileExists) where info.pointee.flags & O_EXCL == 0 {
            // A file has appeared since the kernel looked. Opening it here would skip the check of its permissions.
            // ESTALE makes the kernel look again (path_resolution(7)).
            throw .system(.staleNFSFileHandle)
        }
    }
}

func onRead(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: FileInfo?) {
    Request.serve(raw, "read") { (request) throws(StoreError) in
        do throws(StoreError) {
            try request.fileSystem.read(request, info, at: offset, size: size)
        } catch {
            try request.refuse(read: id, at: offset, error)
        }
    }
}

func onWrite(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ data: UnsafePointer<CChar>?, _ size: Int, _ offset: off_t,
    _ info: FileInfo?
) {
    Request.serve(raw, "write") { (request) throws(StoreError) in
        try request.dropSetIDIfAsked(id)
        try request.fileSystem.write(request, info, UnsafeRawBufferPointer(start: data, count: size), at: offset)
    }
}

func onRelease(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: FileInfo?) {
    Request.serve(raw, "release") { (request) throws(StoreError) in
        request.server.leaveGate()
        try request.fileSystem.releaseFile(info)
        request.reply()
    }
}

func onSynchronize(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ dataOnly: Int32, _ info: FileInfo?) {
    Request.serve(raw, "fsync") { (request) throws(StoreError) in
        request.server.leaveGate()
        try request.fileSystem.synchronizeFile(info, dataOnly: dataOnly != 0)
        request.reply()
    }
}

func onAllocate(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ mode: Int32, _ offset: off_t, _ length: off_t, _ info: FileInfo?
) {
    Request.serve(raw, "fallocate") { (request) throws(StoreError) in
        guard offset >= 0, length > 0, offset <= off_t.max - length else { throw .system(.invalidArgument) }
        try request.dropSetIDUnlessRoot(id)
        try request.fileSystem.allocate(request, info, mode: mode, range: UInt64(offset)..<UInt64(offset + length))
        request.reply()
    }
}

func onSeek(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ offset: off_t, _ whence: Int32, _ info: FileInfo?) {
    Request.serve(raw, "lseek") { (request) throws(StoreError) in
        guard offset >= 0 else { throw .system(.noSuchAddressOrDevice) }
        guard whence == linux_SEEK_DATA || whence == linux_SEEK_HOLE else { throw .system(.invalidArgument) }
        let found = try request.fileSystem.seek(info, from: UInt64(offset), toHole: whence == linux_SEEK_HOLE)
        fuse_reply_lseek(request.raw, off_t(found))
    }
}

func onCopyFileRange(
    _ raw: fuse_req_t?, _ source: fuse_ino_t, _ sourceOffset: off_t, _ sourceInfo: FileInfo?,
    _ destination: fuse_ino_t, _ destinationOffset: off_t, _ destinationInfo: FileInfo?, _ size: Int, _ flags: Int32
) {
    Request.serve(raw, "copy_file_range") { (request) throws(StoreError) in
        try request.dropSetIDUnlessRoot(destination)
        let count = try request.fileSystem.copy(
            request, from: sourceInfo, at: sourceOffset, to: destinationInfo, at: destinationOffset, count: size)
        fuse_reply_write(request.raw, count)
    }
}
