internal import CFuse
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

func onLookup(_ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?) {
    Request.serve(raw, "lookup") { (request) throws(StoreError) in
        do throws(StoreError) {
            request.reply(try request.fileSystem.lookUp(bytes(name), in: NodeID(rawValue: parent)))
        } catch .system(.noSuchFileOrDirectory) {
            // Node 0 lets the kernel cache that the name does not exist.
            var parameters = fuse_entry_param()
            if request.server.keepsMissingNames.load(ordering: .relaxed) {
                parameters.entry_timeout = request.server.timeout
            }
            fuse_reply_entry(request.raw, &parameters)
        }
    }
}

func onForget(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ count: UInt64) {
    Request.serve(raw, "forget", isUse: false) { (request) throws(StoreError) in
        request.fileSystem.forget(NodeID(rawValue: id), count: count)
        fuse_reply_none(request.raw)
    }
}

func onForgetMulti(_ raw: fuse_req_t?, _ count: Int, _ forgets: UnsafeMutablePointer<fuse_forget_data>?) {
    Request.serve(raw, "forget", isUse: false) { (request) throws(StoreError) in
        for forget in UnsafeBufferPointer(start: forgets, count: count) {
            request.fileSystem.forget(NodeID(rawValue: forget.ino), count: forget.nlookup)
        }
        fuse_reply_none(request.raw)
    }
}

func onReadLink(_ raw: fuse_req_t?, _ id: fuse_ino_t) {
    Request.serve(raw, "readlink") { (request) throws(StoreError) in
        withCString(try request.fileSystem.linkTarget(NodeID(rawValue: id))) { target in
            _ = fuse_reply_readlink(request.raw, target)
        }
    }
}

func onMakeNode(
    _ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ mode: mode_t, _ device: dev_t
) {
    Request.serve(raw, "mknod") { (request) throws(StoreError) in
        request.reply(
            try request.fileSystem.makeNode(
                bytes(name), in: NodeID(rawValue: parent), mode: mode, device: device, for: request.creator()))
    }
}

func onMakeDirectory(_ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ mode: mode_t) {
    Request.serve(raw, "mkdir") { (request) throws(StoreError) in
        request.reply(
            try request.fileSystem.makeDirectory(
                bytes(name), in: NodeID(rawValue: parent), mode: mode, for: request.creator()))
    }
}

func onSymbolicLink(
    _ raw: fuse_req_t?, _ target: UnsafePointer<CChar>?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?
) {
    Request.serve(raw, "symlink") { (request) throws(StoreError) in
        request.reply(
            try request.fileSystem.makeLink(
                bytes(name), in: NodeID(rawValue: parent), target: bytes(target), for: request.creator()))
    }
}

func onLink(_ raw: fuse_req_t?, _ id: fuse_ino_t, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?) {
    Request.serve(raw, "link") { (request) throws(StoreError) in
        request.reply(
            try request.fileSystem.link(
                NodeID(rawValue: id), as: bytes(name), in: NodeID(rawValue: parent), for: request.creator()))
    }
}

func onUnlink(_ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?) {
    Request.serve(raw, "unlink") { (request) throws(StoreError) in
        try request.fileSystem.unlink(bytes(name), in: NodeID(rawValue: parent))
        request.reply()
    }
}

func onRemoveDirectory(_ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?) {
    Request.serve(raw, "rmdir") { (request) throws(StoreError) in
        try request.fileSystem.removeDirectory(bytes(name), in: NodeID(rawValue: parent))
        request.reply()
    }
}

func onRename(
    _ raw: fuse_req_t?, _ parent: fuse_ino_t, _ name: UnsafePointer<CChar>?, _ newParent: fuse_ino_t,
    _ newName: UnsafePointer<CChar>?, _ flags: UInt32
) {
    Request.serve(raw, "rename") { (request) throws(StoreError) in
        try request.fileSystem.rename(
            bytes(name), in: NodeID(rawValue: parent), to: bytes(newName), in: NodeID(rawValue: newParent),
            flags: flags, for: request.creator())
        request.reply()
    }
}
