internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Returns the table of libfuse's callbacks.
func makeOperations() -> fuse_lowlevel_ops {
    var operations = fuse_lowlevel_ops()
    operations.`init` = onInit
    operations.addNames()
    operations.addAttributes()
    operations.addFiles()
    operations.addDirectories()
    return operations
}

/// Chooses the capabilities and limits of the connection.
private func onInit(_ userdata: UnsafeMutableRawPointer?, _ connection: UnsafeMutablePointer<fuse_conn_info>?) {
    guard let connection else { return }
    // Requested if the kernel has it: unmasked modes (the store applies umask and default ACLs), O_TRUNC passed to
    // open, parallel lookups, attributes with listings. Below: access checks with ACLs by the kernel.
    let wanted =
        FUSE_CAP_DONT_MASK | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS
        | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO
    // Not requested:
    // - Write-back caching in the kernel: acknowledged writes would be lost if the daemon dies, and a write(2) running
    //   during a lock would leave pages that other programs can read.
    // - Splice: it saves one copy but costs three more system calls.
    // - FUSE_CAP_ASYNC_DIO: the kernel drops cached pages when it submits an O_DIRECT write, not when the write is
    //   done. A buffered read in between keeps the old data for good (xfstests generic/451). libfuse's passthrough_ll
    //   has the same fault.
    connection.pointee.want = connection.pointee.capable & UInt32(wanted)
    if let userdata {
        let server = Unmanaged<FuseServer>.fromOpaque(userdata).takeUnretainedValue()
        if !server.linksListings {
            connection.pointee.want &= ~UInt32(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO)
        }
        connection.pointee.want |= connection.pointee.capable & UInt32(cachingFlags(server))
        // This implies default_permissions (process_init_reply, fs/fuse/inode.c). Otherwise the kernel passes ACLs
        // through.
        if server.kernelChecks { connection.pointee.want |= connection.pointee.capable & UInt32(FUSE_CAP_POSIX_ACL) }
        // Without FUSE_HANDLE_KILLPRIV_V2 the kernel asks for security.capability before each write.
        let message = server.worker.message
        server.offeredFlags.store(linux_fuse_offered_flags(message.mem, message.size), ordering: .relaxed)
        // libfuse ends the session if this differs from `-o max_read=N` (do_init in fuse_lowlevel.c).
        connection.pointee.max_read = server.maximumRead
    }
    connection.pointee.max_write = FuseServer.maximumWrite
    connection.pointee.max_background = 64
    connection.pointee.congestion_threshold = 48
    connection.pointee.time_gran = 1
}

/// Returns the flags by which the kernel finds outdated pages and link targets.
private func cachingFlags(_ server: FuseServer) -> Int32 {
    // With libfuse's default, the kernel drops pages if the size or the time of a file has changed.
    guard server.fileSystem.ownsSource else { return FUSE_CAP_AUTO_INVAL_DATA }
    // Here the default would make the kernel drop all pages of a file after each of its own changes, because the time
    // has changed. A read during another write then brings the old data back into the page cache for good (seen on
    // 6.18). Link targets are cached only here, because elsewhere another link could get the inode number.
    return FUSE_CAP_EXPLICIT_INVAL_DATA | (server.bypassesKernelCache ? 0 : FUSE_CAP_CACHE_SYMLINKS)
}

/// The callbacks for names, attributes and extended attributes.
extension fuse_lowlevel_ops {
    mutating func addNames() {
        lookup = { raw, parent, name in
            Request.serve(raw, "lookup", parent) { (request) throws(StoreError) in
                let name = bytes(name)
                do throws(StoreError) {
                    let found = try request.fileSystem.lookUp(name, in: NodeID(parent))
                    // `.` and `..` come from an NFS server or open_by_handle_at(2).
                    let isName = !name.elementsEqual(".".utf8) && !name.elementsEqual("..".utf8)
                    request.reply(
                        found,
                        lifetime: isName
                            ? request.lifetimeOfNames(in: parent) : request.server.lifetimes.ofUnordered)
                } catch .system(.noSuchFileOrDirectory) {
                    // Node 0 lets the kernel cache the missing name.
                    var parameters = fuse_entry_param()
                    if request.server.keepsMissingNames.load(ordering: .relaxed) {
                        parameters.entry_timeout = request.lifetimeOfNames(in: parent)
                    }
                    fuse_reply_entry(request.raw, &parameters)
                }
            }
        }
        forget = { raw, id, count in
            Request.serve(raw, "forget", id, isUse: false) { (request) throws(StoreError) in
                request.fileSystem.forget(NodeID(id), count: count)
                fuse_reply_none(request.raw)
            }
        }
        forget_multi = { raw, count, forgets in
            Request.serve(raw, "forget", NodeID.root.rawValue, isUse: false) { (request) throws(StoreError) in
                for forget in UnsafeBufferPointer(start: forgets, count: count) {
                    request.fileSystem.forget(NodeID(forget.ino), count: forget.nlookup)
                }
                fuse_reply_none(request.raw)
            }
        }
        readlink = { raw, id in
            Request.serve(raw, "readlink", id) { (request) throws(StoreError) in
                withCString(try request.fileSystem.linkTarget(NodeID(id))) { target in
                    _ = fuse_reply_readlink(request.raw, target)
                }
            }
        }
        mknod = { raw, parent, name, mode, device in
            Request.make(raw, "mknod", name, in: parent, .node(mode: mode, device: device))
        }
        mkdir = { raw, parent, name, mode in Request.make(raw, "mkdir", name, in: parent, .directory(mode: mode)) }
        symlink = { raw, target, parent, name in
            Request.make(raw, "symlink", name, in: parent, .link(target: bytes(target)))
        }
        link = { raw, id, parent, name in Request.make(raw, "link", name, in: parent, .hardLink(of: NodeID(id))) }
        unlink = { raw, parent, name in
            Request.perform(raw, "unlink", parent) { (request) throws(StoreError) in
                try request.fileSystem.remove(bytes(name), in: NodeID(parent), isDirectory: false)
            }
        }
        rmdir = { raw, parent, name in
            Request.perform(raw, "rmdir", parent) { (request) throws(StoreError) in
                try request.fileSystem.remove(bytes(name), in: NodeID(parent), isDirectory: true)
            }
        }
        rename = { raw, parent, name, newParent, newName, flags in
            Request.perform(raw, "rename", parent) { (request) throws(StoreError) in
                try request.fileSystem.rename(
                    bytes(name), in: NodeID(parent), to: bytes(newName), in: NodeID(newParent), flags: flags,
                    for: request.creator())
            }
        }
    }

    mutating func addAttributes() {
        getattr = { raw, id, _ in
            Request.serve(raw, "getattr", id) { (request) throws(StoreError) in
                request.reply(
                    attributes: try request.fileSystem.attributes(NodeID(id)),
                    lifetime: request.server.lifetimes.ofFetchedAttributes)
            }
        }
        access = { raw, id, mask in
            Request.perform(raw, "access", id) { (request) throws(StoreError) in
                try request.fileSystem.checkAccess(NodeID(id), mask, isOpening: false)
            }
        }
        setattr = { raw, id, attributes, valid, info in
            Request.serve(raw, "setattr", id) { (request) throws(StoreError) in
                guard let attributes = attributes?.pointee else { throw .system(.invalidArgument) }
                let known = valid & AttributeChanges.knownFlags
                if known & FUSE_SET_ATTR_SIZE != 0, info == nil { try request.checkOpening(id, flags: O_WRONLY) }
                if known & FUSE_SET_ATTR_SIZE != 0 { try request.dropSetIDIfAsked(id) }
                let lifetime = request.server.lifetimes.ofUnordered
                if known == 0, try !request.mayClearSetID(id) {
                    return request.reply(attributes: try request.fileSystem.attributes(NodeID(id)), lifetime: lifetime)
                }
                let isOwnerChange = known & ~(FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) == 0
                // chown(2) on the store clears the bits, unless it refuses. But the daemon may keep a setgid bit that
                // its caller may not.
                if isOwnerChange, known == 0 || request.server.kernelChecks { try request.dropSetIDUnlessRoot(id) }
                let changes = AttributeChanges(attributes, known)
                let changed = try request.fileSystem.change(request, NodeID(id), changes, info)
                if changes.mode != nil, changed.deniesSearch { request.permissionsHaveChanged(id) }
                request.reply(attributes: changed, lifetime: lifetime)
            }
        }
        statfs = { raw, id in
            Request.serve(raw, "statfs", id, isUse: false) { (request) throws(StoreError) in
                var space = try request.fileSystem.space()
                fuse_reply_statfs(request.raw, &space)
            }
        }
        setxattr = { raw, id, name, value, size, flags in
            Request.perform(raw, "setxattr", id) { (request) throws(StoreError) in
                let value = [UInt8](UnsafeRawBufferPointer(start: value, count: value == nil ? 0 : size))
                let name = bytes(name)
                try request.checkSettingAttribute(id, name)
                try request.fileSystem.setAttribute(NodeID(id), name, value: value, flags: flags)
                // The kernel also asks for it with a default ACL (fuse_set_acl), which leaves the bit on other file
                // systems.
                if name.elementsEqual("system.posix_acl_access".utf8) {
                    try request.clearSetGroupIDIfAsked(id)
                    request.permissionsHaveChanged(id)
                }
            }
        }
        getxattr = { raw, id, name, size in
            Request.serve(raw, "getxattr", id) { (request) throws(StoreError) in
                try request.reply(attribute: try request.fileSystem.attribute(NodeID(id), bytes(name)), size: size)
            }
        }
        listxattr = { raw, id, size in
            Request.serve(raw, "listxattr", id) { (request) throws(StoreError) in
                let names = try request.fileSystem.attributeNames(NodeID(id))
                try request.reply(attribute: names.flatMap { $0 + [0] }, size: size)
            }
        }
        removexattr = { raw, id, name in
            Request.perform(raw, "removexattr", id) { (request) throws(StoreError) in
                let name = bytes(name)
                try request.checkSettingAttribute(id, name)
                try request.fileSystem.setAttribute(NodeID(id), name, value: nil, flags: 0)
                if name.elementsEqual("system.posix_acl_access".utf8) { request.permissionsHaveChanged(id) }
            }
        }
    }
}

extension AttributeChanges {
    /// The flags of SETATTR that we apply.
    fileprivate static let knownFlags =
        FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_ATIME
        | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW

    fileprivate init(_ attributes: stat, _ flags: Int32) {
        self.init()
        // A chown(2) with neither owner nor group still clears set-id bits and capabilities, so call it for the backing
        // file. The kernel also sends this before a write that clears them.
        if flags == 0 { uid = .max }
        if flags & FUSE_SET_ATTR_MODE != 0 { mode = attributes.st_mode }
        if flags & FUSE_SET_ATTR_UID != 0 { uid = attributes.st_uid }
        if flags & FUSE_SET_ATTR_GID != 0 { gid = attributes.st_gid }
        if flags & FUSE_SET_ATTR_SIZE != 0 { length = UInt64(max(0, attributes.st_size)) }
        let now = timespec(tv_sec: 0, tv_nsec: linux_UTIME_NOW)
        if flags & FUSE_SET_ATTR_ATIME != 0 { accessTime = attributes.st_atim }
        if flags & FUSE_SET_ATTR_ATIME_NOW != 0 { accessTime = now }
        if flags & FUSE_SET_ATTR_MTIME != 0 { modificationTime = attributes.st_mtim }
        if flags & FUSE_SET_ATTR_MTIME_NOW != 0 { modificationTime = now }
    }
}

extension stat {
    /// True for a directory that this process's user cannot search, or perhaps cannot.
    var deniesSearch: Bool {
        st_mode & S_IFMT == S_IFDIR && (st_mode & S_IXUSR == 0 || st_uid != geteuid())
    }
}
