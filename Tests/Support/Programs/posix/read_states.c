// Reads a file while another thread writes, cuts, extends, punches and syncs it. Each 4 KiB of the file has the number of the
// change that wrote it, so each read can be compared with what had been acknowledged when it began: it must not return an older
// state. Prints the number of changes and reads. Ends with 1 if a read did.
//
// usage: read_states FILE SECONDS direct|buffered SEED [LOG]
//   LOG: the vault's log, which is removed now and then.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 96, READERS = 3 };

static const char *path;
static int extra_flags;
static atomic_bool ends;
// Of each block: the last change that was acknowledged, and the last that was begun and makes zeros of it.
static _Atomic uint64_t acknowledged[BLOCKS], zeroed[BLOCKS];
static atomic_long reads, stale;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void *aligned(size_t size)
{
    void *bytes;
    if (posix_memalign(&bytes, BLOCK, size) != 0) fail("posix_memalign");
    memset(bytes, 0, size);
    return bytes;
}

static void *read_on(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    char *bytes = aligned(BLOCKS * BLOCK);
    while (!ends) {
        int first = rand_r(&seed) % BLOCKS, count = 1 + rand_r(&seed) % (BLOCKS - first);
        uint64_t before[BLOCKS];
        int file = open(path, O_RDONLY | extra_flags);
        if (file < 0) fail("open");
        for (int block = first; block < first + count; block++) before[block] = acknowledged[block];
        ssize_t size = pread(file, bytes, (size_t)count * BLOCK, (off_t)first * BLOCK);
        if (size < 0) fail("pread");
        for (int block = first; (block - first + 1) * BLOCK <= size; block++) {
            uint64_t found = *(uint64_t *)(bytes + (block - first) * BLOCK);
            if (found >= before[block] || (found == 0 && zeroed[block] >= before[block])) continue;
            if (stale++ < 5)
                fprintf(stderr, "block %d is of change %ju, after %ju was acknowledged\n", block, (uintmax_t)found,
                        (uintmax_t)before[block]);
        }
        reads++;
        close(file);
    }
    free(bytes);
    return NULL;
}

int main(int count, char **arguments)
{
    if (count < 5) return 2;
    path = arguments[1];
    time_t end = time(NULL) + atoi(arguments[2]);
    extra_flags = strcmp(arguments[3], "direct") == 0 ? O_DIRECT : 0;
    unsigned seed = (unsigned)atoi(arguments[4]), seeds[READERS];
    int file = open(path, O_CREAT | O_RDWR, 0644);
    char *bytes = aligned(BLOCKS * BLOCK);
    if (file < 0) fail(path);
    pthread_t threads[READERS];
    for (int reader = 0; reader < READERS; reader++) {
        seeds[reader] = seed * 10 + (unsigned)reader;
        if (pthread_create(&threads[reader], NULL, read_on, &seeds[reader]) != 0) fail("pthread_create");
    }
    uint64_t change = 0;
    int length = 0;
    while (time(NULL) < end && stale == 0) {
        change++;
        int first = rand_r(&seed) % BLOCKS, last = first + 1 + rand_r(&seed) % (BLOCKS - first), what = rand_r(&seed) % 16;
        off_t offset = (off_t)first * BLOCK, size = (off_t)(last - first) * BLOCK;
        if (what < 8) {
            // A gap before it becomes zeros.
            for (int block = length; block < first; block++) zeroed[block] = change;
            for (int block = first; block < last; block++)
                for (int word = 0; word < BLOCK / 8; word++)
                    ((uint64_t *)bytes)[(block - first) * (BLOCK / 8) + word] = change;
            if (pwrite(file, bytes, (size_t)size, offset) != size) fail("pwrite");
            for (int block = length < first ? length : first; block < last; block++) acknowledged[block] = change;
            if (last > length) length = last;
        } else if (what < 12) {
            int longest = rand_r(&seed) % 2 ? BLOCKS : first;
            for (int block = length < first ? length : first; block < BLOCKS; block++) zeroed[block] = change;
            if (ftruncate(file, offset) != 0) fail("ftruncate");
            for (int block = first; block < BLOCKS; block++) acknowledged[block] = change;
            length = first;
            if (longest > first) {
                // All that was cut off is zeros now.
                if (ftruncate(file, (off_t)longest * BLOCK) != 0) fail("ftruncate");
                length = longest;
            }
        } else if (what < 14) {
            for (int block = first; block < last; block++) zeroed[block] = change;
            if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) fail("fallocate");
            for (int block = first; block < last; block++) acknowledged[block] = change;
        } else if (what == 14) {
            // A checkpoint follows at once.
            for (int block = first; block < last; block++) zeroed[block] = change;
            // tmpfs itself has none.
            if (fallocate(file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, size) != 0) continue;
            for (int block = first; block < last; block++) acknowledged[block] = change;
        } else {
            if (count > 5 && rand_r(&seed) % 4 == 0) unlink(arguments[5]);
            if (fsync(file) != 0) fail("fsync");
        }
        if (rand_r(&seed) % 4 == 0) usleep(300);
    }
    ends = 1;
    for (int reader = 0; reader < READERS; reader++) pthread_join(threads[reader], NULL);
    printf("%ju changes, %ld reads, %ld of an older state\n", (uintmax_t)change, reads, stale);
    return stale != 0;
}
