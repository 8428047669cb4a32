internal import CFuse
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

func onOpenDirectory(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: FileInfo?) {
    Request.serve(raw, "opendir") { (request) throws(StoreError) in
        guard let info else { throw .system(.invalidArgument) }
        try request.fileSystem.openDirectory(request, NodeID(rawValue: id), info.pointee)
    }
}

func onReleaseDirectory(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: FileInfo?) {
    Request.serve(raw, "releasedir") { (request) throws(StoreError) in
        try request.fileSystem.releaseDirectory(info)
        request.reply()
    }
}

func onSynchronizeDirectory(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ dataOnly: Int32, _ info: FileInfo?
) {
    Request.serve(raw, "fsyncdir") { (request) throws(StoreError) in
        request.server.leaveGate()
        try request.fileSystem.synchronizeDirectory(info, dataOnly: dataOnly != 0)
        request.reply()
    }
}

func onReadDirectory(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: FileInfo?
) {
    Request.serve(raw, "readdir") { (request) throws(StoreError) in
        try request.fileSystem.list(request, info, size, offset, withAttributes: false)
    }
}

func onReadDirectoryPlus(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int, _ offset: off_t, _ info: FileInfo?
) {
    Request.serve(raw, "readdirplus") { (request) throws(StoreError) in
        try request.fileSystem.list(request, info, size, offset, withAttributes: true)
    }
}

/// The operations on open directories. A callback of libfuse cannot name a file system's types, so it calls these.
extension FileSystem {
    fileprivate func openDirectory(_ request: Request, _ id: NodeID, _ info: fuse_file_info) throws(StoreError) {
        var info = info
        info.fh = reference(try openDirectory(id))
        if fuse_reply_open(request.raw, &info) != 0 { try releaseDirectory(&info) }
    }

    fileprivate func releaseDirectory(_ info: FileInfo?) throws(StoreError) {
        release(try object(info, Directory.self).takeRetainedValue())
    }

    fileprivate func synchronizeDirectory(_ info: FileInfo?, dataOnly: Bool) throws(StoreError) {
        try synchronize(try object(info, Directory.self).takeUnretainedValue(), dataOnly: dataOnly)
    }

    fileprivate func list(
        _ request: Request, _ info: FileInfo?, _ size: Int, _ offset: off_t, withAttributes: Bool
    ) throws(StoreError) {
        let directory = try object(info, Directory.self).takeUnretainedValue()
        let reply = request.server.worker.workspace.reply
        let buffer = UnsafeMutableRawBufferPointer(rebasing: reply[..<min(size, reply.count)])
        var used = 0
        do {
            try list(directory, from: Int64(offset), withAttributes: withAttributes) { listed in
                let free = UnsafeMutableRawBufferPointer(rebasing: buffer[used...])
                let needed = add(listed, withAttributes, request, to: free)
                guard used + needed <= buffer.count else { return false }
                used += needed
                return true
            }
        } catch {
            // Reply with the entries before the failure. The next call meets it again.
            if used == 0 { throw error }
        }
        request.reply(UnsafeRawBufferPointer(rebasing: buffer[..<used]))
    }
}

/// Adds an entry to the buffer if it fits. Returns the size that it needs.
private func add(
    _ listed: ListedEntry, _ withAttributes: Bool, _ request: Request, to buffer: UnsafeMutableRawBufferPointer
) -> Int {
    let start = buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
    return withCString(listed.name) { name in
        guard withAttributes else {
            var attributes = listed.attributes
            return fuse_add_direntry(request.raw, start, buffer.count, name, &attributes, off_t(listed.nextOffset))
        }
        var parameters = fuse_entry_param()
        parameters.attr = listed.attributes
        if let id = listed.id {
            parameters = request.parameters(NodeEntry(id: id, attributes: listed.attributes))
        }
        return fuse_add_direntry_plus(request.raw, start, buffer.count, name, &parameters, off_t(listed.nextOffset))
    }
}
