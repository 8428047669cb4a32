internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage

/// One request of the kernel, in a callback of libfuse.
struct Request {
    let raw: fuse_req_t
    let server: FuseServer

    var fileSystem: any LockableFileSystem { server.fileSystem }

    /// Runs a callback's body. If it throws an error, the error is the reply.
    /// - Parameters:
    ///   - object: the object of the request, or the directory whose names it concerns.
    ///   - isUse: true if the request counts as use of the mount, which delays the lock or unmount of an idle one.
    @inline(__always)
    static func serve(
        _ raw: fuse_req_t?, _ operation: StaticString, _ object: fuse_ino_t, isUse: Bool = true,
        _ body: (Request) throws(StoreError) -> Void
    ) {
        guard let raw else { return }
        let server = Unmanaged<FuseServer>.fromOpaque(fuse_req_userdata(raw)).takeUnretainedValue()
        server.requests.add(1, ordering: .relaxed)
        if isUse { server.gate.markActivity() }
        do throws(StoreError) {
            try body(Request(raw: raw, server: server))
        } catch {
            server.log(error, operation, NodeID(object))
            if error == .locked || error == .expired { server.worker.isRefused = true }
            fuse_reply_err(raw, error.errno.rawValue)
        }
    }

    /// Does the same as `serve`, and replies success.
    static func perform(
        _ raw: fuse_req_t?, _ operation: StaticString, _ object: fuse_ino_t,
        _ body: (Request) throws(StoreError) -> Void
    ) {
        serve(raw, operation, object) { (request) throws(StoreError) in
            try body(request)
            fuse_reply_err(request.raw, 0)
        }
    }

    /// Serves a request that makes an object.
    static func make(
        _ raw: fuse_req_t?, _ operation: StaticString, _ name: UnsafePointer<CChar>?, in parent: fuse_ino_t,
        _ object: NewObject
    ) {
        serve(raw, operation, parent) { (request) throws(StoreError) in
            let made = try request.fileSystem.make(bytes(name), in: NodeID(parent), object, for: request.creator())
            request.reply(made, lifetime: request.lifetimeOfNames(in: parent))
        }
    }

    /// Returns the caller, as owner of a new object. Sets this thread's own umask to the caller's.
    func creator() -> Caller {
        let context = fuse_req_ctx(raw).pointee
        server.worker.setCreationMask(context.umask)
        return Caller(uid: context.uid, gid: context.gid)
    }

    /// - Parameter withGroups: true to read the supplementary groups, from /proc.
    func caller(withGroups: Bool) -> Caller {
        let context = fuse_req_ctx(raw).pointee
        var caller = Caller(uid: context.uid, gid: context.gid)
        if withGroups && context.uid != 0 {
            var groups = [gid_t](repeating: 0, count: 256)
            let count = fuse_req_getgroups(raw, Int32(groups.count), &groups)
            caller.groups = Array(groups.prefix(max(0, min(Int(count), groups.count))))
        }
        return caller
    }

    /// The kernel's flag of an open(2) by execve(2): __FMODE_EXEC in include/linux/fs.h.
    private static let isExecuting: Int32 = 0x20

    /// Checks an open(2) of a file, if the kernel does not.
    func checkOpening(_ id: fuse_ino_t, flags: Int32) throws(StoreError) {
        if server.kernelChecks { return }
        var mask: Int32 =
            switch flags & O_ACCMODE {
            case O_RDONLY: flags & Self.isExecuting == 0 ? R_OK : X_OK
            case O_WRONLY: W_OK
            default: R_OK | W_OK
            }
        if flags & O_TRUNC != 0 { mask |= W_OK }
        try fileSystem.checkAccess(NodeID(id), mask, isOpening: true)
    }

    /// Checks a change of a `user.*` attribute, if the kernel does not (xattr_permission in fs/xattr.c). The store
    /// checks only changes of its own attributes.
    func checkSettingAttribute(_ id: fuse_ino_t, _ name: [UInt8]) throws(StoreError) {
        if server.kernelChecks || !name.starts(with: "user.".utf8) { return }
        try fileSystem.checkAccess(NodeID(id), W_OK, isOpening: false)
    }

    /// Reports changed permissions to a kernel that does not check them, and so would not notice the change.
    func permissionsHaveChanged(_ id: fuse_ino_t) {
        if server.kernelChecks { return }
        let status = try? fileSystem.attributes(NodeID(id))
        server.onPermissions.notify((id, status?.deniesSearch ?? true))
    }

    /// Clears the set-id bits if the kernel asks for it (FUSE_HANDLE_KILLPRIV_V2), which libfuse 3.14 does not pass on.
    func dropSetIDIfAsked(_ id: fuse_ino_t) throws(StoreError) {
        let message = server.worker.message
        guard linux_fuse_kills_privileges(message.mem, message.size) != 0 else { return }
        try dropSetID(id)
    }

    /// Clears the set-id bits in calls for which the kernel never asks for it: fallocate(2), copy_file_range(2).
    func dropSetIDUnlessRoot(_ id: fuse_ino_t) throws(StoreError) {
        if fuse_req_ctx(raw).pointee.uid != 0 { try dropSetID(id) }
    }

    /// Returns true if the caller may clear set-id bits without writing. The kernel refuses other callers, except in
    /// chown(2) with neither owner nor group, which reaches us as a SETATTR of nothing.
    func mayClearSetID(_ id: fuse_ino_t) throws(StoreError) -> Bool {
        let uid = fuse_req_ctx(raw).pointee.uid
        if uid == 0 { return true }
        return try fileSystem.attributes(NodeID(id)).st_uid == uid
    }

    /// Clears the set-group-ID bit after an access ACL was set, if the kernel asks for it (FUSE_SETXATTR_EXT). The
    /// daemon has the right to keep the bit, but the caller does not. The mode cannot change in between, because the
    /// kernel holds the inode's lock.
    func clearSetGroupIDIfAsked(_ id: fuse_ino_t) throws(StoreError) {
        guard linux_fuse_kills_setgid(server.worker.setxattrFlags) != 0 else { return }
        let mode = try fileSystem.attributes(NodeID(id)).st_mode
        guard mode & S_ISGID != 0 else { return }
        var changes = AttributeChanges()
        changes.mode = mode & 0o7777 & ~S_ISGID
        _ = try fileSystem.change(self, NodeID(id), changes, nil)
    }

    private func dropSetID(_ id: fuse_ino_t) throws(StoreError) {
        try fileSystem.dropSetID(NodeID(id)) { caller(withGroups: true) }
    }

    /// Answers a failed read, with a delay if the kernel repeats the same read again and again.
    func refuse(read id: fuse_ino_t, at offset: off_t, _ error: StoreError) throws(StoreError) {
        let thread = UInt32(bitPattern: fuse_req_ctx(raw).pointee.pid)
        let read = RepeatedRefusals.Read(thread: thread, node: id, offset: Int64(offset))
        guard server.refusals.isRepeated(read) else { throw error }
        server.refusals.answerLater(raw, error.errno.rawValue)
    }

    func reply(_ entry: NodeEntry, lifetime: Double) {
        var parameters = parameters(entry, lifetime: lifetime)
        if fuse_reply_entry(raw, &parameters) != 0 { fileSystem.forget(entry.id, count: 1) }
    }

    func reply(attributes: stat, lifetime: Double) {
        var attributes = attributes
        fuse_reply_attr(raw, &attributes, lifetime)
    }

    /// Returns the lifetime, in seconds, of names that the kernel links in a directory.
    func lifetimeOfNames(in directory: fuse_ino_t) -> Double {
        let thread = UInt32(bitPattern: fuse_req_ctx(raw).pointee.pid)
        return server.lifetimes.ofNames(in: directory, thread: thread, server.worker.linkedNames)
    }

    func reply(_ bytes: UnsafeRawBufferPointer) {
        fuse_reply_buf(raw, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
    }

    /// Replies as getxattr(2): with the value's size if `size` is 0, and with ERANGE if `size` is too small.
    func reply(attribute value: [UInt8], size: Int) throws(StoreError) {
        if size == 0 {
            fuse_reply_xattr(raw, value.count)
        } else if size < value.count {
            throw .system(.outOfRange)
        } else {
            value.withUnsafeBytes { reply($0) }
        }
    }

    /// - Parameter lifetime: from `ReplyLifetimes`, in seconds.
    func parameters(_ entry: NodeEntry, lifetime: Double) -> fuse_entry_param {
        var parameters = fuse_entry_param()
        parameters.ino = entry.id.rawValue
        parameters.generation = server.generation
        parameters.attr = entry.attributes
        parameters.attr_timeout = lifetime
        parameters.entry_timeout = lifetime
        return parameters
    }
}

/// Returns the bytes of a name or link target from the kernel.
func bytes(_ text: UnsafePointer<CChar>?) -> [UInt8] {
    guard let text else { return [] }
    return [UInt8](UnsafeRawBufferPointer(start: text, count: strlen(text)))
}
