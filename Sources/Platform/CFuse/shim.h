// libfuse3's low-level interface, as Debian 12 and 13 ship it (3.14, 3.17).
#pragma once
#define FUSE_USE_VERSION 314
// On 64-bit Linux off_t has 64 bits as it is. libfuse insists on the macro, which must not change how the C library's
// own headers spell their types (Swift's Glibc module has read them without it): so they are read before.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#include <fuse3/fuse_lowlevel.h>

// fuse_session_new is a macro in 3.17, which Swift does not import.
static inline struct fuse_session *cfuse_session_new(
    struct fuse_args *arguments, const struct fuse_lowlevel_ops *operations, size_t size, void *userdata) {
    return fuse_session_new(arguments, operations, size, userdata);
}

// fuse_lowlevel_notify_expire_entry has flags in 3.14, and always expires in 3.17.
static inline int cfuse_notify_expire_entry(
    struct fuse_session *session, fuse_ino_t parent, const char *name, size_t length) {
#if FUSE_VERSION < FUSE_MAKE_VERSION(3, 15)
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length, FUSE_LL_EXPIRE_ONLY);
#else
    return fuse_lowlevel_notify_expire_entry(session, parent, name, length);
#endif
}
