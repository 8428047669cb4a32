// Random operations on one file beside a buffer that has what the file must have, as fsx does: read, write, truncate, mapped
// read and write, fallocate with every mode that vaultfs has, SEEK_DATA and SEEK_HOLE, fsync, and close and open. Prints the
// number of operations done after each tenth. Ends with 1 at the first difference, after the last operations.
//
// usage: file_exercise FILE OPERATIONS SEED
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST = 1 << 18, LONGEST = 1 << 16, PAGE = 4096, REMEMBERED = 20 };

static uint8_t content[LARGEST], bytes[LARGEST];
static off_t length;
static const char *path;
static int file;
static uint64_t state;
static char history[REMEMBERED][64];
static long number;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545F4914F6CDD1Du >> 11) % below;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(history[number % REMEMBERED], sizeof *history, format, arguments);
    va_end(arguments);
}

__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "operation %ld: %s (%s); the length is %ld. The last ones:\n", number, what, strerror(errno), (long)length);
    for (long i = number < REMEMBERED ? 0 : number - REMEMBERED + 1; i <= number; i++)
        fprintf(stderr, "%ld %s\n", i, history[i % REMEMBERED]);
    exit(1);
}

static void require(int isTrue, const char *what)
{
    if (!isTrue)
        fail(what);
}

static void compare(off_t at, size_t size, const char *what)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != content[at + (off_t)i]) {
            fprintf(stderr, "at %ld: %02x, not %02x\n", (long)at + (long)i, bytes[i], content[at + (off_t)i]);
            errno = 0;
            fail(what);
        }
}

// Takes the bytes to write into the content, which becomes longer if they are past its end.
static void store(off_t at, size_t size)
{
    if (at + (off_t)size > length)
        length = at + (off_t)size;
    memcpy(content + at, bytes, size);
}

static void make_bytes(size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = draw(UINT64_MAX);
        memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
    }
}

static void set_length(off_t to)
{
    if (to < length)
        memset(content + to, 0, (size_t)(length - to));
    length = to;
}

static void map(off_t at, size_t size, int isWriting)
{
    off_t first = at / PAGE * PAGE;
    size_t mapped = size + (size_t)(at - first);
    uint8_t *pages = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, first);
    require(pages != MAP_FAILED, "mmap");
    memcpy(isWriting ? pages + (at - first) : bytes, isWriting ? bytes : pages + (at - first), size);
    require(!isWriting || draw(2) || msync(pages, mapped, MS_SYNC) == 0, "msync");
    require(munmap(pages, mapped) == 0, "munmap");
}

// Finds data and a hole. A part that SEEK_DATA passes over must be zeros.
static void seek(off_t at)
{
    off_t data = lseek(file, at, SEEK_DATA), hole = lseek(file, at, SEEK_HOLE);
    require(hole >= at && hole <= length, "SEEK_HOLE");
    require(data >= at || (data == -1 && errno == ENXIO), "SEEK_DATA");
    for (off_t end = data < 0 ? length : data; at < end; at++)
        require(content[at] == 0, "a hole with data in it");
}

static void allocate(int mode, off_t at, size_t size)
{
    require(fallocate(file, mode, at, (off_t)size) == 0, "fallocate");
    off_t end = at + (off_t)size;
    if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) && at < length)
        memset(content + at, 0, (size_t)((end < length ? end : length) - at));
    if (!(mode & FALLOC_FL_KEEP_SIZE) && end > length)
        set_length(end);
}

static void reopen(void)
{
    require(close(file) == 0, "close");
    file = open(path, O_RDWR);
    require(file >= 0, "open");
}

static void step(void)
{
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    off_t at = (off_t)draw(LARGEST);
    if (draw(4) == 0)
        at = at / PAGE * PAGE;
    size_t size = 1 + draw(draw(2) ? LONGEST : PAGE), left = LARGEST - (size_t)at;
    size = size < left ? size : left;
    size_t inside = at >= length ? 0 : (off_t)size < length - at ? size : (size_t)(length - at);
    uint64_t kind = draw(100);
    note("%d: %ld %zu, length %ld", (int)kind, (long)at, size, (long)length);
    if (kind < 25) {
        require(pread(file, bytes, size, at) == (ssize_t)inside, "read");
        compare(at, inside, "read");
    } else if (kind < 45) {
        make_bytes(size);
        require(pwrite(file, bytes, size, at) == (ssize_t)size, "write");
        store(at, size);
    } else if (kind < 55) {
        require(ftruncate(file, at) == 0, "truncate");
        set_length(at);
    } else if (kind < 65 && inside > 0) {
        map(at, inside, 0);
        compare(at, inside, "mapped read");
    } else if (kind < 75 && inside > 0) {
        make_bytes(inside);
        map(at, inside, 1);
        store(at, inside);
    } else if (kind < 85) {
        allocate(modes[draw(5)], at, size);
    } else if (kind < 90) {
        reopen();
    } else if (kind < 93 && inside > 0) {
        require(fsync(file) == 0, "fsync");
        seek(at);
    } else if (kind < 95) {
        require(fsync(file) == 0, "fsync");
    } else {
        struct stat status;
        require(fstat(file, &status) == 0 && status.st_size == length, "stat");
    }
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 2;
    path = arguments[1];
    long operations = atol(arguments[2]);
    state = strtoull(arguments[3], NULL, 10) * 2 + 1;
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    require(file >= 0, "open");
    for (number = 0; number < operations; number++) {
        step();
        if ((number + 1) % (operations / 10) == 0) {
            printf("%ld\n", number + 1);
            fflush(stdout);
        }
    }
    reopen();
    require(pread(file, bytes, LARGEST, 0) == length, "the end");
    compare(0, (size_t)length, "the end");
    return close(file) != 0;
}
