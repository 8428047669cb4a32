internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import SystemPackage

func onOpen(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "open") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        try request.fileSystem.open(NodeID(rawValue: id), request, info.pointee)
    }
}

func onCreate(
    _ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ mode: mode_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "create") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        do throws(StoreError) {
            try request.fileSystem.create(
                bytes(name), in: NodeID(rawValue: parent), mode: mode, request, info.pointee)
        } catch .system(.fileExists) where info.pointee.flags & O_EXCL == 0 {
            // A file has appeared since the kernel looked, behind its back. Opening it here would be without a look at
            // its permissions: the kernel is to look again (path_resolution(7): ESTALE makes it).
            throw .system(.staleNFSFileHandle)
        }
    }
}

func onRead(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "read") { (request) throws(StoreError) in
        let data: UnsafeRawBufferPointer
        do throws(StoreError) {
            data = try request.fileSystem.read(
                try RawHandle(info), at: UInt64(offset), size: size, buffers: request.server.workspace)
        } catch {
            return try request.refuse(read: id, at: offset, error)
        }
        request.reply(data)
    }
}

func onWrite(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ data: UnsafePointer<CChar>?, _ size: Int, _ offset: off_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "write") { (request) throws(StoreError) in
        try request.dropSetIDIfAsked(id)
        let count = try request.fileSystem.write(
            try RawHandle(info), UnsafeRawBufferPointer(start: data, count: size), at: UInt64(offset),
            isWriteBack: info?.pointee.writepage == 1, buffers: request.server.workspace)
        fuse_reply_write(request.raw, count)
    }
}

func onRelease(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "release") { (request) throws(StoreError) in
        request.server.passLockBy()
        request.fileSystem.releaseFile(try RawHandle(info))
        request.reply()
    }
}

func onSynchronize(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ dataOnly: Int32, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "fsync") { (request) throws(StoreError) in
        request.server.passLockBy()
        try request.fileSystem.synchronizeFile(try RawHandle(info), dataOnly: dataOnly != 0)
        request.reply()
    }
}

func onAllocate(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ mode: Int32, _ offset: off_t, _ length: off_t,
    _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "fallocate") { (request) throws(StoreError) in
        guard offset >= 0, length > 0, offset <= off_t.max - length else { throw .system(.invalidArgument) }
        try request.dropSetIDUnlessRoot(id)
        try request.fileSystem.allocate(
            try RawHandle(info), mode: mode, range: UInt64(offset)..<UInt64(offset + length),
            buffers: request.server.workspace)
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
            try RawHandle(info), from: UInt64(offset), toHole: whence == linux_SEEK_HOLE)
        fuse_reply_lseek(request.raw, off_t(found))
    }
}

func onCopyFileRange(
    _ raw: fuse_req_t?, _ source: fuse_ino_t, _ sourceOffset: off_t,
    _ sourceInfo: UnsafeMutablePointer<fuse_file_info>?, _ destination: fuse_ino_t, _ destinationOffset: off_t,
    _ destinationInfo: UnsafeMutablePointer<fuse_file_info>?, _ size: Int, _ flags: Int32
) {
    Request.serve(raw, "copy_file_range") { (request) throws(StoreError) in
        try request.dropSetIDUnlessRoot(destination)
        let count = try request.fileSystem.copy(
            from: try RawHandle(sourceInfo), at: UInt64(sourceOffset), to: try RawHandle(destinationInfo),
            at: UInt64(destinationOffset), count: size, buffers: request.server.workspace)
        fuse_reply_write(request.raw, count)
    }
}
