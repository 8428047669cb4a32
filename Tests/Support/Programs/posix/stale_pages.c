// Writes parts of a file and reads each back through a mapping, while two other threads read the file. The kernel must not
// bring the old data back into its page cache. Prints the number of writes. Ends with 1 if one was not seen.
//
// usage: stale_pages FILE SECONDS
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 2 << 20, LONGEST = 1 << 16, FIRST = 700000, PLACES = 20000, PAGE = 4096, READ = 400000 };

static const char *path;
static atomic_bool ends;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void *read_on(void *argument)
{
    unsigned seed = *(unsigned *)argument;
    int file = open(path, O_RDONLY);
    char *bytes = malloc(READ);
    if (file < 0 || bytes == NULL) fail("reader");
    while (!ends)
        if (pread(file, bytes, READ, 560000 + rand_r(&seed) % 100000) < 0) fail("pread");
    free(bytes);
    close(file);
    return NULL;
}

static int is_seen(int file, off_t at, const char *bytes, size_t size)
{
    off_t start = at / PAGE * PAGE;
    char *pages = mmap(NULL, at - start + size, PROT_READ, MAP_SHARED, file, start);
    if (pages == MAP_FAILED) fail("mmap");
    int result = memcmp(pages + (at - start), bytes, size) == 0;
    munmap(pages, at - start + size);
    return result;
}

int main(int count, char **arguments)
{
    static char bytes[SIZE];
    unsigned seeds[] = {1, 2}, seed = 3;
    pthread_t readers[2];
    long writes = 0, lost = 0;
    if (count != 3) return 2;
    path = arguments[1];
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || write(file, bytes, SIZE) != SIZE) fail(path);
    time_t end = time(NULL) + atoi(arguments[2]);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&readers[i], NULL, read_on, &seeds[i]) != 0) fail("pthread_create");
    while (time(NULL) < end && lost == 0) {
        size_t size = 1 + rand_r(&seed) % LONGEST;
        off_t at = FIRST + rand_r(&seed) % PLACES;
        memset(bytes, rand_r(&seed), size);
        if (pwrite(file, bytes, size, at) != (ssize_t)size) fail("pwrite");
        writes++;
        if (is_seen(file, at, bytes, size)) continue;
        lost++;
        printf("write %ld of %zu bytes at %jd was not seen\n", writes, size, (intmax_t)at);
    }
    ends = 1;
    for (int i = 0; i < 2; i++) pthread_join(readers[i], NULL);
    printf("%ld writes\n", writes);
    return lost != 0;
}
