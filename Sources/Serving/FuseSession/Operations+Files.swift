internal import CFuse
internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Locking
internal import SystemPackage

typealias FileInfo = UnsafeMutablePointer<fuse_file_info>

/// Returns the object to which `fh` refers. The kernel holds this reference for us.
@inline(__always)
func object<Object: AnyObject>(_ info: FileInfo?, _: Object.Type) throws(StoreError) -> Unmanaged<Object> {
    guard let info, let pointer = UnsafeRawPointer(bitPattern: UInt(info.pointee.fh)) else {
        throw .system(.badFileDescriptor)
    }
    return .fromOpaque(pointer)
}

/// Returns a new reference to an object, for `fh`.
func reference(_ object: AnyObject) -> UInt64 { UInt64(UInt(bitPattern: Unmanaged.passRetained(object).toOpaque())) }

/// The operations on open files and directories. libfuse's callbacks call these, because they cannot name a file
/// system's types.
extension FileSystem {
    @inline(__always)
    private func file(_ info: FileInfo?) throws(StoreError) -> File {
        try object(info, File.self).takeUnretainedValue()
    }

    /// Returns the calling worker's workspace.
    @inline(__always)
    private func workspace(_ request: Request) -> Workspace {
        // The cast is safe, because this file system's `makeWorkspace` made the workspace.
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
        switch try beginOpening(id, flags: info.flags, for: caller, workspace: workspace(request)) {
        case .opened(let file): reply(file, to: request, info)
        case .deferred(let runsCommand, let finish):
            let server = request.server
            (runsCommand ? server.commandOpens : server.quickOpens).add(request) { [self] request, mustReply in
                do throws(StoreError) {
                    let file = try finish()
                    if mustReply() { reply(file, to: request, info) } else { release(file) }
                } catch {
                    guard mustReply() else { return }
                    request.server.log(error, "open", id)
                    fuse_reply_err(request.raw, error.errno.rawValue)
                }
            }
        }
    }

    private func reply(_ file: File, to request: Request, _ info: fuse_file_info) {
        if case .outdated = pageCaching(of: file) {
            release(file)
            // ESTALE makes Linux walk the path again, with lookups that set the size, and repeat the open once
            // (do_filp_open in fs/namei.c, fuse_dentry_revalidate in fs/fuse/dir.c). After a notification instead, a
            // program could append at the old end, or map pages past the new one, before the kernel asks for the
            // attributes.
            fuse_reply_err(request.raw, Errno.staleNFSFileHandle.rawValue)
            return
        }
        var info = fileInfo(info, for: file, request)
        // A program killed meanwhile sends no release.
        if fuse_reply_open(request.raw, &info) != 0 { try? releaseFile(&info) }
    }

    fileprivate func create(
        _ request: Request, _ name: [UInt8], in parent: NodeID, mode: mode_t, _ info: fuse_file_info
    ) throws(StoreError) {
        let created = try create(name, in: parent, mode: mode, flags: info.flags, for: request.creator())
        var info = fileInfo(info, for: created.handle, request)
        var parameters = request.parameters(
            created.entry, lifetime: request.lifetimeOfNames(in: parent.rawValue))
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
        case .drop, .outdated: break
        }
        return info
    }

    fileprivate func releaseFile(_ info: FileInfo?) throws(StoreError) {
        release(try object(info, File.self).takeRetainedValue())
    }

    fileprivate func read(_ request: Request, _ info: FileInfo?, at offset: off_t, size: Int) throws(StoreError) {
        let workspace = workspace(request)
        let buffer = workspace.reply(size)
        let file = try file(info)
        // The kernel itself reads ahead into the page cache, where a second copy on another core costs more than it
        // saves (Performance.md). Add the work before the read, so that both run at the same time.
        let flags = info?.pointee.flags ?? 0
        if flags & linux_O_DIRECT != 0 || request.server.bypassesKernelCache,
            file.sequence.add(at: UInt64(offset), count: size, cacheSize: request.server.cacheSize)
        {
            request.server.ahead.add(aheadOfReads(file))
        }
        let count = try read(file, at: UInt64(offset), into: buffer, workspace: workspace)
        request.reply(UnsafeRawBufferPointer(buffer.slice(..<count)))
    }

    private func aheadOfReads(_ file: File) -> ReadAhead.Work {
        ReadAhead.Work(file: file) { [self] workspace in
            // The cast is safe, because this file system's `makeWorkspace` made the workspace.
            let workspace = unsafeDowncast(workspace, to: Workspace.self)
            return file.sequence.decryptNext { readAhead(file, at: $0, workspace: workspace) }
        }
    }

    fileprivate func write(
        _ request: Request, _ id: fuse_ino_t, _ info: FileInfo?, _ data: UnsafeRawBufferPointer, at offset: off_t
    ) throws(StoreError) {
        do throws(StoreError) {
            try writeOnce(request, id, info, data, at: offset)
        } catch {
            request.server.unwritten.add(id, offset..<offset + data.count)
            // An unlock first lets writes pass, then looks for such ranges. So it finds this one, or this write passes
            // now.
            guard error == .locked || error == .expired, request.server.gate.admitsWrites() else { throw error }
            try writeOnce(request, id, info, data, at: offset)
        }
    }

    /// Writes and replies.
    private func writeOnce(
        _ request: Request, _ id: fuse_ino_t, _ info: FileInfo?, _ data: UnsafeRawBufferPointer, at offset: off_t
    ) throws(StoreError) {
        try request.dropSetIDIfAsked(id)
        let count = try write(
            try file(info), data, at: UInt64(offset), isWriteBack: info?.pointee.writepage == 1,
            workspace: workspace(request))
        if count < data.count {
            request.server.unwritten.add(id, offset + count..<offset + data.count)
        }
        fuse_reply_write(request.raw, count)
    }

    fileprivate func synchronizeFile(_ info: FileInfo?, dataOnly: Bool) throws(StoreError) {
        try synchronize(try file(info), dataOnly: dataOnly)
    }

    fileprivate func allocate(
        _ request: Request, _ info: FileInfo?, mode: Int32, range: Range<UInt64>
    ) throws(StoreError) { try allocate(try file(info), mode: mode, range: range, workspace: workspace(request)) }

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

    // MARK: Directories

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
        _ request: Request, _ id: fuse_ino_t, _ info: FileInfo?, _ size: Int, _ offset: off_t, withAttributes: Bool
    ) throws(StoreError) {
        let directory = try object(info, Directory.self).takeUnretainedValue()
        let buffer = workspace(request).reply(size)
        let lifetime = withAttributes ? request.lifetimeOfNames(in: id) : nil
        var used = 0
        do {
            try list(directory, from: Int64(offset), withAttributes: withAttributes) { listed in
                let needed = request.add(listed, lifetime: lifetime, to: buffer.slice(used...))
                guard used + needed <= buffer.count else { return false }
                used += needed
                return true
            }
        } catch {
            // Reply with the entries before the failure. The next call fails at the same entry.
            if used == 0 { throw error }
        }
        request.reply(UnsafeRawBufferPointer(buffer.slice(..<used)))
    }
}

extension WorkerBuffers {
    /// Returns the buffer for a reply of at most `size` bytes.
    @inline(__always)
    fileprivate func reply(_ size: Int) -> UnsafeMutableRawBufferPointer {
        let reply = reply
        return reply.slice(..<min(size, reply.count))
    }
}

extension Request {
    /// Adds an entry to the buffer if it fits. Returns the size needed.
    /// - Parameter lifetime: the lifetime of the names, in seconds. Nil if the reply has no attributes.
    fileprivate func add(
        _ listed: ListedEntry, lifetime: Double?, to buffer: UnsafeMutableRawBufferPointer
    ) -> Int {
        let start = buffer.baseAddress?.assumingMemoryBound(to: CChar.self)
        return withCString(listed.name) { name in
            guard let lifetime else {
                var attributes = listed.attributes
                return fuse_add_direntry(raw, start, buffer.count, name, &attributes, off_t(listed.nextOffset))
            }
            var parameters = fuse_entry_param()
            parameters.attr = listed.attributes
            if let id = listed.id {
                parameters = self.parameters(NodeEntry(id: id, attributes: listed.attributes), lifetime: lifetime)
            }
            return fuse_add_direntry_plus(raw, start, buffer.count, name, &parameters, off_t(listed.nextOffset))
        }
    }
}

/// The callbacks for files and directories. flush has none, because close(2) has nothing to write, and without a
/// callback the kernel stops asking after the first time.
extension fuse_lowlevel_ops {
    mutating func addFiles() {
        open = { raw, id, info in
            Request.serve(raw, "open", id) { (request) throws(StoreError) in
                guard let info else { throw .system(.invalidArgument) }
                try request.checkOpening(id, flags: info.pointee.flags)
                try request.fileSystem.open(request, NodeID(id), info.pointee)
            }
        }
        create = { raw, parent, name, mode, info in
            Request.serve(raw, "create", parent) { (request) throws(StoreError) in
                guard let info = info?.pointee else { throw .system(.invalidArgument) }
                do throws(StoreError) {
                    try request.fileSystem.create(request, bytes(name), in: NodeID(parent), mode: mode, info)
                } catch .system(.fileExists) where info.flags & O_EXCL == 0 {
                    // A file has appeared since the kernel looked. Opening it here would skip the check of its
                    // permissions, but ESTALE makes the kernel look again (path_resolution(7)).
                    throw .system(.staleNFSFileHandle)
                }
            }
        }
        read = { raw, id, size, offset, info in
            Request.serve(raw, "read", id) { (request) throws(StoreError) in
                do throws(StoreError) { try request.fileSystem.read(request, info, at: offset, size: size) } catch {
                    try request.refuse(read: id, at: offset, error)
                }
            }
        }
        write = { raw, id, data, size, offset, info in
            Request.serve(raw, "write", id) { (request) throws(StoreError) in
                let data = UnsafeRawBufferPointer(start: data, count: size)
                try request.fileSystem.write(request, id, info, data, at: offset)
            }
        }
        release = { raw, id, info in
            Request.perform(raw, "release", id) { (request) throws(StoreError) in
                request.server.leaveGate()
                try request.fileSystem.releaseFile(info)
            }
        }
        fsync = { raw, id, dataOnly, info in
            Request.perform(raw, "fsync", id) { (request) throws(StoreError) in
                request.server.leaveGate()
                try request.fileSystem.synchronizeFile(info, dataOnly: dataOnly != 0)
            }
        }
        fallocate = { raw, id, mode, offset, length, info in
            Request.perform(raw, "fallocate", id) { (request) throws(StoreError) in
                guard offset >= 0, length > 0, offset <= off_t.max - length else { throw .system(.invalidArgument) }
                try request.dropSetIDUnlessRoot(id)
                let range = UInt64(offset)..<UInt64(offset + length)
                try request.fileSystem.allocate(request, info, mode: mode, range: range)
            }
        }
        lseek = { raw, id, offset, whence, info in
            Request.serve(raw, "lseek", id) { (request) throws(StoreError) in
                guard offset >= 0 else { throw .system(.noSuchAddressOrDevice) }
                let toHole = whence == linux_SEEK_HOLE
                guard toHole || whence == linux_SEEK_DATA else { throw .system(.invalidArgument) }
                let found = try request.fileSystem.seek(info, from: UInt64(offset), toHole: toHole)
                fuse_reply_lseek(request.raw, off_t(found))
            }
        }
        copy_file_range = { raw, _, sourceOffset, source, id, offset, destination, size, _ in
            Request.serve(raw, "copy_file_range", id) { (request) throws(StoreError) in
                try request.dropSetIDUnlessRoot(id)
                let count = try request.fileSystem.copy(
                    request, from: source, at: sourceOffset, to: destination, at: offset, count: size)
                fuse_reply_write(request.raw, count)
            }
        }
    }

    mutating func addDirectories() {
        opendir = { raw, id, info in
            Request.serve(raw, "opendir", id) { (request) throws(StoreError) in
                guard let info else { throw .system(.invalidArgument) }
                try request.fileSystem.openDirectory(request, NodeID(id), info.pointee)
            }
        }
        releasedir = { raw, id, info in
            Request.perform(raw, "releasedir", id) { (request) throws(StoreError) in
                try request.fileSystem.releaseDirectory(info)
            }
        }
        fsyncdir = { raw, id, dataOnly, info in
            Request.perform(raw, "fsyncdir", id) { (request) throws(StoreError) in
                request.server.leaveGate()
                try request.fileSystem.synchronizeDirectory(info, dataOnly: dataOnly != 0)
            }
        }
        readdir = { raw, id, size, offset, info in
            Request.serve(raw, "readdir", id) { (request) throws(StoreError) in
                try request.fileSystem.list(request, id, info, size, offset, withAttributes: false)
            }
        }
        readdirplus = { raw, id, size, offset, info in
            Request.serve(raw, "readdirplus", id) { (request) throws(StoreError) in
                try request.fileSystem.list(request, id, info, size, offset, withAttributes: true)
            }
        }
    }
}
