internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

func onGetAttributes(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ info: FileInfo?) {
    Request.serve(raw, "getattr") { (request) throws(StoreError) in
        request.reply(attributes: try request.fileSystem.attributes(NodeID(rawValue: id)))
    }
}

func onSetAttributes(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ attributes: UnsafeMutablePointer<stat>?, _ valid: Int32,
    _ info: FileInfo?
) {
    Request.serve(raw, "setattr") { (request) throws(StoreError) in
        guard let attributes = attributes?.pointee else { throw .system(.invalidArgument) }
        if valid & FUSE_SET_ATTR_SIZE != 0 { try request.dropSetIDIfAsked(id) }
        if valid & FuseServer.knownAttributes == 0, try !request.mayClearSetID(id) {
            return request.reply(attributes: try request.fileSystem.attributes(NodeID(rawValue: id)))
        }
        if valid & FuseServer.knownAttributes & ~(FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) == 0 {
            // The daemon runs chown(2) on the store, and may keep a setgid bit that the caller may not.
            try request.dropSetIDUnlessRoot(id)
        }
        request.reply(
            attributes: try request.fileSystem.change(
                request, NodeID(rawValue: id), changes(attributes, valid), info))
    }
}

private func changes(_ attributes: stat, _ valid: Int32) -> AttributeChanges {
    let now = timespec(tv_sec: 0, tv_nsec: linux_UTIME_NOW)
    var changes = AttributeChanges()
    // A chown(2) with neither owner nor group still clears set-id bits and capabilities. A chown(2) of the backing file
    // does that. The kernel also sends this before a write that clears them.
    if valid & FuseServer.knownAttributes == 0 { changes.uid = .max }
    if valid & FUSE_SET_ATTR_MODE != 0 { changes.mode = attributes.st_mode }
    if valid & FUSE_SET_ATTR_UID != 0 { changes.uid = attributes.st_uid }
    if valid & FUSE_SET_ATTR_GID != 0 { changes.gid = attributes.st_gid }
    if valid & FUSE_SET_ATTR_SIZE != 0 { changes.length = UInt64(max(0, attributes.st_size)) }
    if valid & FUSE_SET_ATTR_ATIME_NOW != 0 {
        changes.accessTime = now
    } else if valid & FUSE_SET_ATTR_ATIME != 0 {
        changes.accessTime = attributes.st_atim
    }
    if valid & FUSE_SET_ATTR_MTIME_NOW != 0 {
        changes.modificationTime = now
    } else if valid & FUSE_SET_ATTR_MTIME != 0 {
        changes.modificationTime = attributes.st_mtim
    }
    return changes
}

func onStatistics(_ raw: fuse_req_t?, _ id: fuse_ino_t) {
    Request.serve(raw, "statfs", isUse: false) { (request) throws(StoreError) in
        var space = try request.fileSystem.space()
        fuse_reply_statfs(request.raw, &space)
    }
}

func onSetExtendedAttribute(
    _ raw: fuse_req_t?, _ id: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ value: UnsafePointer<CChar>?, _ size: Int,
    _ flags: Int32
) {
    Request.serve(raw, "setxattr") { (request) throws(StoreError) in
        let value = [UInt8](UnsafeRawBufferPointer(start: value, count: value == nil ? 0 : size))
        try request.fileSystem.setAttribute(NodeID(rawValue: id), bytes(name), value: value, flags: flags)
        try request.clearSetGroupIDIfAsked(id)
        request.reply()
    }
}

func onGetExtendedAttribute(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ size: Int) {
    Request.serve(raw, "getxattr") { (request) throws(StoreError) in
        try request.reply(
            attribute: try request.fileSystem.attribute(NodeID(rawValue: id), bytes(name)), size: size)
    }
}

func onListExtendedAttributes(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ size: Int) {
    Request.serve(raw, "listxattr") { (request) throws(StoreError) in
        var list: [UInt8] = []
        for name in try request.fileSystem.attributeNames(NodeID(rawValue: id)) {
            list += name
            list.append(0)
        }
        try request.reply(attribute: list, size: size)
    }
}

func onRemoveExtendedAttribute(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ name: UnsafePointer<CChar>?) {
    Request.serve(raw, "removexattr") { (request) throws(StoreError) in
        try request.fileSystem.removeAttribute(NodeID(rawValue: id), bytes(name))
        request.reply()
    }
}
