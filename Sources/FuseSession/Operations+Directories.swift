internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import SystemPackage

func onOpenDirectory(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "opendir") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        try request.fileSystem.openDirectory(NodeID(rawValue: id), request, info.pointee)
    }
}

func onReleaseDirectory(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: UnsafeMutablePointer<fuse_file_info>?) {
    Request.serve(raw, "releasedir") { (request) throws(StoreError) in
        request.fileSystem.releaseDirectory(try RawHandle(info))
        request.reply()
    }
}

func onSynchronizeDirectory(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ dataOnly: Int32, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "fsyncdir") { (request) throws(StoreError) in
        request.server.passLockBy()
        try request.fileSystem.synchronizeDirectory(try RawHandle(info), dataOnly: dataOnly != 0)
        request.reply()
    }
}

func onReadDirectory(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "readdir") { (request) throws(StoreError) in
        try list(request, try RawHandle(info), size, offset, withAttributes: false)
    }
}

func onReadDirectoryPlus(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: UnsafeMutablePointer<fuse_file_info>?
) {
    Request.serve(raw, "readdirplus") { (request) throws(StoreError) in
        try list(request, try RawHandle(info), size, offset, withAttributes: true)
    }
}

private func list(
    _ request: Request, _ handle: RawHandle, _ size: Int, _ offset: off_t, withAttributes: Bool
) throws(StoreError) {
    let reply = request.server.workspace.reply
    let buffer = UnsafeMutableRawBufferPointer(rebasing: reply[..<min(size, reply.count)])
    var used = 0
    do {
        try request.fileSystem.list(handle, from: Int64(offset), withAttributes: withAttributes) { listed in
            let needed = add(listed, withAttributes, request, UnsafeMutableRawBufferPointer(rebasing: buffer[used...]))
            guard used + needed <= buffer.count else { return false }
            used += needed
            return true
        }
    } catch {
        // What was listed before the failure still goes out; the next call meets it again.
        if used == 0 { throw error }
    }
    request.reply(UnsafeRawBufferPointer(rebasing: buffer[..<used]))
}

/// Puts an entry into the buffer where it fits; returns the size it needs.
private func add(
    _ listed: ListedEntry, _ withAttributes: Bool, _ request: Request,
    _ place: UnsafeMutableRawBufferPointer
) -> Int {
    let start = place.baseAddress?.assumingMemoryBound(to: CChar.self)
    return withCString(listed.name) { name in
        guard withAttributes else {
            var attributes = listed.attributes
            return fuse_add_direntry(request.raw, start, place.count, name, &attributes, off_t(listed.nextOffset))
        }
        var parameters = fuse_entry_param()
        parameters.attr = listed.attributes
        if let id = listed.id {
            parameters = request.parameters(NodeEntry(id: id, attributes: listed.attributes))
        }
        return fuse_add_direntry_plus(request.raw, start, place.count, name, &parameters, off_t(listed.nextOffset))
    }
}
