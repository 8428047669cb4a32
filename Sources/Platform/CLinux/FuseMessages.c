#define _GNU_SOURCE
#include "CLinux.h"

#include <linux/fuse.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int body(const void *request, size_t size, uint32_t opcode, void *fields, size_t fields_size) {
    struct fuse_in_header header;
    if (size < sizeof header + fields_size) return 0;
    memcpy(&header, request, sizeof header);
    if (header.opcode != opcode) return 0;
    memcpy(fields, (const char *)request + sizeof header, fields_size);
    return 1;
}

uint32_t linux_fuse_thread(const void *request, size_t size) {
    struct fuse_in_header header;
    if (size < sizeof header) return 0;
    memcpy(&header, request, sizeof header);
    switch (header.opcode) {
    // No thread waits for these.
    case FUSE_FORGET: case FUSE_BATCH_FORGET: case FUSE_INTERRUPT: case FUSE_RELEASE: case FUSE_RELEASEDIR:
        return 0;
    // No thread waits for written-back pages.
    case FUSE_WRITE: {
        struct fuse_write_in write;
        if (body(request, size, FUSE_WRITE, &write, sizeof write) && (write.write_flags & FUSE_WRITE_CACHE)) return 0;
    }
    }
    return header.pid != 0 ? header.pid : linux_fuse_unknown_thread;
}

int linux_fuse_reads_ahead(const void *request, size_t size) {
    struct fuse_read_in read;
    // While a file is read in order, these double until they reach the read-ahead, 128 KiB (mm/readahead.c). Only reads past
    // the page cache name a lock owner (fuse_direct_io in fs/fuse/file.c).
    return body(request, size, FUSE_READ, &read, sizeof read) && read.size >= 64 << 10
        && !(read.read_flags & FUSE_READ_LOCKOWNER);
}

int linux_fuse_synchronizes(const void *request, size_t size) {
    struct fuse_in_header header;
    if (size < sizeof header) return 0;
    memcpy(&header, request, sizeof header);
    return header.opcode == FUSE_FSYNC || header.opcode == FUSE_FSYNCDIR;
}

uint32_t linux_fuse_offered_flags(const void *request, size_t size) {
    // The fields that every minor version since 7.6 has.
    struct {
        uint32_t major, minor, max_readahead, flags;
    } init;
    if (!body(request, size, FUSE_INIT, &init, sizeof init)) return 0;
    return init.flags & (FUSE_HANDLE_KILLPRIV_V2 | FUSE_SETXATTR_EXT);
}

int linux_fuse_add_flags(struct iovec *reply, int count, uint32_t flags) {
    struct fuse_out_header header;
    struct fuse_init_out init;
    size_t fields = offsetof(struct fuse_init_out, flags) + sizeof init.flags;
    // fuse_lowlevel.c, fuse_send_reply_iov_nofree: the header, then the fields of do_init.
    if (count != 2 || reply[0].iov_len != sizeof header || reply[1].iov_len < fields) return 0;
    memcpy(&header, reply[0].iov_base, sizeof header);
    // A notification may come first.
    if (header.unique == 0) return 0;
    memcpy(&init, reply[1].iov_base, fields);
    init.flags |= flags;
    memcpy(reply[1].iov_base, &init, fields);
    return 1;
}

intptr_t linux_fuse_reply(int device, const struct iovec *parts, int count) {
    // The kernel pins the page of each part (fuse_copy_fill in fs/fuse/dev.c), and copies the list of them first.
    char reply[256];
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    if (size > sizeof reply) return writev(device, parts, count);
    char *end = reply;
    for (int i = 0; i < count; i++) end = mempcpy(end, parts[i].iov_base, parts[i].iov_len);
    ssize_t written = write(device, reply, size);
    // Names and short files.
    explicit_bzero(reply, size);
    return written;
}

int linux_fuse_extends_setxattr(uint32_t flags) { return (flags & FUSE_SETXATTR_EXT) != 0; }

uint32_t linux_fuse_shorten_setxattr(void *request, size_t *size) {
    struct fuse_in_header header;
    struct fuse_setxattr_in setxattr;
    if (!body(request, *size, FUSE_SETXATTR, &setxattr, sizeof setxattr)) return 0;
    char *fields = (char *)request + sizeof header;
    size_t longer = sizeof setxattr - FUSE_COMPAT_SETXATTR_IN_SIZE;
    memmove(fields + FUSE_COMPAT_SETXATTR_IN_SIZE, fields + sizeof setxattr, *size - sizeof header - sizeof setxattr);
    *size -= longer;
    memcpy(&header, request, sizeof header);
    header.len -= longer;
    memcpy(request, &header, sizeof header);
    return setxattr.setxattr_flags;
}

int linux_fuse_kills_setgid(uint32_t setxattr_flags) { return (setxattr_flags & FUSE_SETXATTR_ACL_KILL_SGID) != 0; }

int linux_fuse_kills_privileges(const void *request, size_t size) {
    struct fuse_write_in write;
    if (body(request, size, FUSE_WRITE, &write, sizeof write)) return (write.write_flags & FUSE_WRITE_KILL_SUIDGID) != 0;
    struct fuse_setattr_in setattr;
    if (body(request, size, FUSE_SETATTR, &setattr, sizeof setattr)) return (setattr.valid & FATTR_KILL_SUIDGID) != 0;
    return 0;
}
