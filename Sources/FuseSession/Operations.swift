internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import Synchronization

/// The table of libfuse's callbacks. There is none for flush: close(2) has nothing to write, and without a callback the
/// kernel stops asking after the first time.
func makeOperations() -> fuse_lowlevel_ops {
    var operations = fuse_lowlevel_ops()
    operations.`init` = onInit
    operations.lookup = onLookup
    operations.forget = onForget
    operations.forget_multi = onForgetMulti
    operations.getattr = onGetAttributes
    operations.setattr = onSetAttributes
    operations.readlink = onReadLink
    operations.mknod = onMakeNode
    operations.mkdir = onMakeDirectory
    operations.unlink = onUnlink
    operations.rmdir = onRemoveDirectory
    operations.symlink = onSymbolicLink
    operations.rename = onRename
    operations.link = onLink
    operations.open = onOpen
    operations.create = onCreate
    operations.read = onRead
    operations.write = onWrite
    operations.release = onRelease
    operations.fsync = onSynchronize
    operations.fallocate = onAllocate
    operations.lseek = onSeek
    operations.copy_file_range = onCopyFileRange
    operations.opendir = onOpenDirectory
    operations.readdir = onReadDirectory
    operations.readdirplus = onReadDirectoryPlus
    operations.releasedir = onReleaseDirectory
    operations.fsyncdir = onSynchronizeDirectory
    operations.statfs = onStatistics
    operations.setxattr = onSetExtendedAttribute
    operations.getxattr = onGetExtendedAttribute
    operations.listxattr = onListExtendedAttributes
    operations.removexattr = onRemoveExtendedAttribute
    return operations
}

/// Chooses the capabilities and limits of the connection.
private func onInit(_ userdata: UnsafeMutableRawPointer?, _ connection: UnsafeMutablePointer<fuse_conn_info>?) {
    guard let connection else { return }
    // Requested if the kernel has it: unmasked modes (the store applies umask and default ACLs), access checks with
    // ACLs by the kernel, O_TRUNC passed to open, parallel lookups, attributes with listings.
    let wanted =
        FUSE_CAP_DONT_MASK | FUSE_CAP_POSIX_ACL | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_READ
        | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO
        | FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_CACHE_SYMLINKS
    // Not requested:
    // - Write-back caching in the kernel: acknowledged writes would be lost if the daemon dies.
    // - Splice: it saves one copy but costs three more system calls.
    // - FUSE_CAP_ASYNC_DIO: the kernel drops cached pages when it submits an O_DIRECT write, not when the write is
    //   done. A buffered read in between keeps the old data for good (xfstests generic/451). libfuse's passthrough_ll
    //   has the same fault.
    connection.pointee.want = connection.pointee.capable & UInt32(wanted)
    if let userdata {
        let server = Unmanaged<FuseServer>.fromOpaque(userdata).takeUnretainedValue()
        // The kernel reads a cached target once. If we do not own the source, another link can get the inode number.
        if server.bypassesKernelCache || server.timeout < 60 {
            connection.pointee.want &= ~UInt32(FUSE_CAP_CACHE_SYMLINKS)
        }
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
