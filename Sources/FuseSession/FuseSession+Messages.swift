internal import CFuse
internal import CLinux
internal import Glibc
internal import Synchronization

/// The messages between the kernel and libfuse, as they pass.
extension FuseSession {
    /// Adds to the reply to INIT what libfuse 3.14 does not know of (fuse_session_custom_io, fuse_lowlevel.h).
    static func takeOverMessages(of session: OpaquePointer) {
        var functions = fuse_custom_io()
        functions.read = { device, buffer, size, _ in read(device, buffer, size) }
        functions.writev = { device, parts, count, userdata in
            if let userdata, let parts {
                let server = Unmanaged<FuseServer>.fromOpaque(userdata).takeUnretainedValue()
                let flags = server.offeredFlags.load(ordering: .relaxed)
                if flags != 0, linux_fuse_take_flags(parts, count, flags) != 0 {
                    // Set this before the kernel has the reply, because it sends longer requests from then on.
                    server.extendsSetxattr.store(linux_fuse_extends_setxattr(flags) != 0, ordering: .relaxed)
                    server.offeredFlags.store(0, ordering: .relaxed)
                }
            }
            return writev(device, parts, count)
        }
        fuse_session_custom_io(session, &functions, fuse_session_fd(session))
    }
}
