internal import BackingStore
internal import CFuse
internal import CLinux
internal import Glibc
internal import Logging
internal import MountedFileSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFileSystem
internal import VaultStore

/// The handle that `onOpen` or `onCreate` gave the kernel: it holds one reference.
func fileHandle(_ info: UnsafeMutablePointer<fuse_file_info>) -> FileHandle {
    guard let pointer = UnsafeRawPointer(bitPattern: UInt(info.pointee.fh)) else {
        preconditionFailure("internal error: a request without a file handle")
    }
    return Unmanaged<FileHandle>.fromOpaque(pointer).takeUnretainedValue()
}

private func handle(_ info: UnsafeMutablePointer<fuse_file_info>?) throws(StoreError) -> FileHandle {
    guard let info else { throw .system(.badFileDescriptor) }
    return fileHandle(info)
}

private func give(_ handle: FileHandle, _ info: inout fuse_file_info, _ server: FuseServer) {
    info.fh = UInt64(UInt(bitPattern: Unmanaged.passRetained(handle).toOpaque()))
    // The kernel's pages stay right across opens: nobody else changes the vault (and mtime tells if somebody did).
    info.keep_cache = 1
    if handle.file.hasUnvouchedTail || server.bypassesKernelCache {
        // Each read is to be answered exactly: a page half vouched for would be filled up with zeros.
        info.direct_io = 1
        info.keep_cache = 0
    }
}

private func takeBack(_ info: fuse_file_info) -> FileHandle? {
    UnsafeRawPointer(bitPattern: UInt(info.fh)).map { Unmanaged<FileHandle>.fromOpaque($0).takeRetainedValue() }
}

func onOpen(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "open") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        let handle = try request.fileSystem.open(
            NodeID(rawValue: id), flags: info.pointee.flags,
            for: request.caller(withGroups: info.pointee.flags & O_TRUNC != 0), workspace: request.server.workspace)
        give(handle, &info.pointee, request.server)
        if fuse_reply_open(request.raw, info) != 0, let handle = takeBack(info.pointee) {
            // The program was killed meanwhile: no release will come.
            request.fileSystem.release(handle)
        }
    }
}

func onCreate(
    _ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ mode: mode_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "create") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        let parent = NodeID(rawValue: parent)
        let name = bytes(name)
        let entry: NodeEntry
        do throws(StoreError) {
            let created = try request.fileSystem.create(
                name, in: parent, mode: mode, flags: info.pointee.flags, for: request.creator())
            entry = created.entry
            give(created.handle, &info.pointee, request.server)
        } catch .system(.fileExists) where info.pointee.flags & O_EXCL == 0 {
            // A file has appeared since the kernel looked, behind its back. Opening it here would be without a look at
            // its permissions: the kernel is to look again (path_resolution(7): ESTALE makes it).
            throw .system(.staleNFSFileHandle)
        }
        var parameters = Request.parameters(entry)
        if fuse_reply_create(request.raw, &parameters, info) != 0, let handle = takeBack(info.pointee) {
            request.fileSystem.release(handle)
            request.fileSystem.forget(entry.id, count: 1)
        }
    }
}

func onRead(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "read") { (request) throws(StoreError) in
        let workspace = request.server.workspace
        let buffer = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<min(size, workspace.reply.count)])
        let count = try request.fileSystem.read(
            try handle(info), at: UInt64(offset), into: buffer, workspace: workspace)
        request.reply(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
    }
}

func onWrite(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ data: UnsafePointer<CChar>?, _ size: Int, _ offset: off_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "write") { (request) throws(StoreError) in
        let count = try request.fileSystem.write(
            try handle(info), UnsafeRawBufferPointer(start: data, count: size), at: UInt64(offset),
            isWriteBack: info?.pointee.writepage == 1, workspace: request.server.workspace)
        fuse_reply_write(request.raw, count)
    }
}

func onRelease(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "release") { (request) throws(StoreError) in
        request.server.passLockBy()
        if let info, let handle = takeBack(info.pointee) { request.fileSystem.release(handle) }
        request.reply()
    }
}

func onSynchronize(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ dataOnly: Int32, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "fsync") { (request) throws(StoreError) in
        request.server.passLockBy()
        try request.fileSystem.synchronize(try handle(info), dataOnly: dataOnly != 0)
        request.reply()
    }
}

func onAllocate(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ mode: Int32, _ offset: off_t, _ length: off_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "fallocate") { (request) throws(StoreError) in
        guard offset >= 0, length > 0, offset <= off_t.max - length else { throw .system(.invalidArgument) }
        try request.fileSystem.allocate(
            try handle(info), mode: mode, range: UInt64(offset)..<UInt64(offset + length),
            workspace: request.server.workspace)
        request.reply()
    }
}

func onSeek(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ offset: off_t, _ whence: Int32,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "lseek") { (request) throws(StoreError) in
        guard offset >= 0 else { throw .system(.noSuchAddressOrDevice) }
        guard whence == linux_SEEK_DATA || whence == linux_SEEK_HOLE else { throw .system(.invalidArgument) }
        let found = try request.fileSystem.seek(
            try handle(info), from: UInt64(offset), toHole: whence == linux_SEEK_HOLE)
        fuse_reply_lseek(request.raw, off_t(found))
    }
}

func onCopyFileRange(
    _ raw: fuse_req_t?, _ source: fuse_ino_t, _ sourceOffset: off_t,
    _ sourceInfo: UnsafeMutablePointer<fuse_file_info>?, _ destination: fuse_ino_t, _ destinationOffset: off_t,
    _ destinationInfo: UnsafeMutablePointer<fuse_file_info>?, _ size: Int, _ flags: Int32
) {
    Request.serve(raw, "copy_file_range") { (request) throws(StoreError) in
        let count = try request.fileSystem.copy(
            from: try handle(sourceInfo), at: UInt64(sourceOffset), to: try handle(destinationInfo),
            at: UInt64(destinationOffset), count: size, workspace: request.server.workspace)
        fuse_reply_write(request.raw, count)
    }
}
