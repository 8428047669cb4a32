// The disk of scripts/torture/power: serves IMAGE as the file MOUNTPOINT/disk and appends every write and fsync to LOG. A loop
// device over that file turns flushes of its file system into fsyncs, so LOG has the barriers of a disk with a write cache.
//
// An entry of LOG, little endian: u64 time (CLOCK_MONOTONIC, ns, of arrival), u64 offset, u64 length, the bytes.
// A length of 0 is a barrier.
//
// usage: power_disk IMAGE LOG MOUNTPOINT (in the foreground, one thread)
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int image, record;
static off_t size;

static int append(uint64_t time, off_t offset, const char *bytes, size_t length)
{
    uint64_t head[] = {time, (uint64_t)offset, length};
    struct iovec parts[] = {{head, sizeof head}, {(void *)bytes, length}};
    return writev(record, parts, 2) == (ssize_t)(sizeof head + length) ? 0 : -EIO;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int disk_getattr(const char *path, struct stat *found, struct fuse_file_info *file)
{
    (void)file;
    memset(found, 0, sizeof *found);
    found->st_nlink = 1;
    if (strcmp(path, "/") == 0) {
        found->st_mode = S_IFDIR | 0700;
    } else if (strcmp(path, "/disk") == 0) {
        found->st_mode = S_IFREG | 0600;
        found->st_size = size;
    } else {
        return -ENOENT;
    }
    return 0;
}

// Without the page cache: each request of the loop device arrives at once, and as one.
static int disk_open(const char *path, struct fuse_file_info *file)
{
    (void)path;
    file->direct_io = 1;
    return 0;
}

static int disk_read(const char *path, char *bytes, size_t length, off_t offset, struct fuse_file_info *file)
{
    (void)path, (void)file;
    ssize_t count = pread(image, bytes, length, offset);
    return count < 0 ? -errno : (int)count;
}

static int disk_write(const char *path, const char *bytes, size_t length, off_t offset, struct fuse_file_info *file)
{
    (void)path, (void)file;
    uint64_t time = now();
    if (offset + (off_t)length > size || pwrite(image, bytes, length, offset) != (ssize_t)length)
        return -EIO;
    int failed = append(time, offset, bytes, length);
    return failed ? failed : (int)length;
}

static int disk_fsync(const char *path, int data_only, struct fuse_file_info *file)
{
    (void)path, (void)data_only, (void)file;
    return append(now(), 0, NULL, 0);
}

static const struct fuse_operations operations = {
    .getattr = disk_getattr,
    .open = disk_open,
    .read = disk_read,
    .write = disk_write,
    .fsync = disk_fsync,
};

int main(int count, char **words)
{
    if (count != 4)
        return 2;
    image = open(words[1], O_RDWR | O_CLOEXEC);
    record = open(words[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (image < 0 || record < 0 || (size = lseek(image, 0, SEEK_END)) < 0) {
        perror(words[0]);
        return 1;
    }
    // Memory that this process needs must not wait for writes to the disk that it serves (prctl(2)).
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    char *arguments[] = {words[0], "-f", "-s", "-o", "fsname=power-disk", words[3]};
    return fuse_main(6, arguments, &operations, NULL);
}
