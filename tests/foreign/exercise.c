/* Random operations on one file, compared with a copy in memory.
 *
 * exercise FILE SEED OPERATIONS SIZE [SYNC]: read, write, map, truncate, reopen, fsync and rename a file of at most SIZE
 * bytes, and compare each read with the copy. One operation in SYNC closes the file, opens it again and reads it whole
 * (default 60). Exit status 0 if nothing differed, 1 with the last operations on standard error if something did.
 */
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
#include <time.h>
#include <unistd.h>

enum { KEPT = 40, LINE = 120 };
static char log_lines[KEPT][LINE];
static long operation;
static uint64_t state;
static unsigned char *copy, *scratch;
static size_t length, limit;
static const char *path;
static char other[4096];
static int file = -1, maps = 1;

static uint64_t any(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return below ? state % below : 0;
}

static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(log_lines[operation % KEPT], LINE, format, arguments);
    va_end(arguments);
}

static void fail(const char *what) {
    fprintf(stderr, "operation %ld: %s (errno: %s)\n", operation, what, strerror(errno));
    for (long each = operation < KEPT ? 0 : operation - KEPT + 1; each <= operation; each++)
        fprintf(stderr, "  %ld %s\n", each, log_lines[each % KEPT]);
    exit(1);
}

static void same(const unsigned char *found, size_t offset, size_t count) {
    if (!memcmp(found, copy + offset, count)) return;
    size_t first = 0, wrong = 0;
    while (found[first] == copy[offset + first]) first++;
    for (size_t each = first; each < count; each++) wrong += found[each] != copy[offset + each];
    char text[160];
    snprintf(text, sizeof text, "at %zu: %02x instead of %02x, %zu bytes differ", offset + first, found[first],
             copy[offset + first], wrong);
    errno = 0;
    fail(text);
}

static void check_size(void) {
    struct stat status;
    if (fstat(file, &status)) fail("fstat");
    if ((size_t)status.st_size != length) {
        char text[80];
        snprintf(text, sizeof text, "fstat says %zu bytes, not %zu", (size_t)status.st_size, length);
        fail(text);
    }
}

static void grow(size_t end) {
    if (end > length) length = end;
}

static void read_some(void) {
    size_t offset = any(length + 1), count = any(65536);
    note("read %zu+%zu of %zu", offset, count, length);
    ssize_t got = pread(file, scratch, count, offset);
    size_t wanted = offset + count > length ? length - offset : count;
    if (got < 0 || (size_t)got != wanted) fail("a read of another length");
    same(scratch, offset, wanted);
}

static void fill(size_t offset, size_t count) {
    for (size_t each = 0; each < count; each++) copy[offset + each] = (unsigned char)(operation * 7 + each * 31 + any(3));
}

static void write_some(void) {
    size_t offset = any(8) ? any(limit) : length, count = 1 + any(any(3) ? 4096 : 65536);
    if (offset >= limit) offset = limit - 1;
    if (offset + count > limit) count = limit - offset;
    note("write %zu+%zu of %zu", offset, count, length);
    fill(offset, count);
    if (pwrite(file, copy + offset, count, offset) != (ssize_t)count) fail("write");
    grow(offset + count);
}

static void append_some(void) {
    size_t count = 1 + any(4096);
    if (length + count > limit) return;
    note("append %zu to %zu", count, length);
    fill(length, count);
    if (lseek(file, 0, SEEK_END) != (off_t)length) fail("the end is elsewhere");
    if (write(file, copy + length, count) != (ssize_t)count) fail("write at the end");
    grow(length + count);
}

static void cut(void) {
    size_t to = any(5) ? any(limit) : 0;
    note("truncate %zu to %zu", length, to);
    if (any(2) ? ftruncate(file, to) : truncate(path, to)) fail("truncate");
    memset(copy + (to < length ? to : length), 0, limit - (to < length ? to : length));
    length = to;
    check_size();
}

static void map_some(int write) {
    if (!length || !maps) return;
    size_t page = 4096, offset = any(length), count = 1 + any(65536);
    if (offset + count > length) count = length - offset;
    size_t start = offset / page * page;
    note("%s by a map %zu+%zu of %zu", write ? "write" : "read", offset, count, length);
    unsigned char *map = mmap(NULL, offset + count - start, PROT_READ | PROT_WRITE, MAP_SHARED, file, start);
    if (map == MAP_FAILED) {
        if (errno != ENODEV) fail("mmap");
        fprintf(stderr, "a file that is written cannot be mapped here\n");
        maps = 0;
        return;
    }
    if (write) {
        fill(offset, count);
        memcpy(map + offset - start, copy + offset, count);
        if (any(2) && msync(map, offset + count - start, MS_SYNC)) fail("msync");
    } else {
        same(map + offset - start, offset, count);
    }
    if (munmap(map, offset + count - start)) fail("munmap");
}

static void whole(void) {
    size_t done = 0;
    check_size();
    while (done < limit) {
        ssize_t got = pread(file, scratch + done, limit - done, done);
        if (got < 0) fail("read");
        if (!got) break;
        done += got;
    }
    if (done != length) fail("the whole file has another length");
    same(scratch, 0, length);
}

static void reopen(void) {
    note("close and open %zu", length);
    if (close(file)) fail("close");
    if ((file = open(path, O_RDWR)) < 0) fail("open");
    whole();
}

/* Rename the file. A slow source may have a rename go on after ETIMEDOUT: then wait until the names are the new ones. */
static void rename_to(const char *from, const char *to) {
    const struct timespec pause = {.tv_nsec = 50000000};
    if (!rename(from, to)) return;
    if (errno != ETIMEDOUT) fail("rename");
    for (int each = 0; each < 1200; each++) {
        if (!access(to, F_OK) && access(from, F_OK) && errno == ENOENT) return;
        nanosleep(&pause, NULL);
    }
    fail("a rename that timed out was not made within a minute");
}

static void move(void) {
    note("rename there and back, %zu", length);
    rename_to(path, other);
    rename_to(other, path);
    check_size();
}

int main(int count, char **words) {
    if (count < 5) return 2;
    path = words[1], state = strtoull(words[2], NULL, 10) * 2654435761u + 88172645463325252u;
    long operations = atol(words[3]), sync = count > 5 ? atol(words[5]) : 60;
    limit = strtoull(words[4], NULL, 10);
    copy = calloc(1, limit + 65536), scratch = calloc(1, limit + 65536);
    snprintf(other, sizeof other, "%s-moved", path);
    if ((file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644)) < 0) fail("create");
    for (operation = 0; operation < operations; operation++) {
        if (!any(sync)) reopen();
        else if (!any(sync * 2)) { note("fsync"); if (fsync(file)) fail("fsync"); }
        else if (!any(sync * 4)) move();
        else switch (any(10)) {
            case 0: case 1: case 2: read_some(); break;
            case 3: case 4: case 5: write_some(); break;
            case 6: append_some(); break;
            case 7: cut(); break;
            case 8: map_some(0); break;
            case 9: map_some(1); break;
        }
    }
    reopen();
    printf("%ld operations, %zu bytes at the end\n", operations, length);
    return close(file) ? 1 : 0;
}
