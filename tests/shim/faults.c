/* Does to one process what a bad disk, a wrong or slewed clock, kill -9 or a power cut does. Loaded before libc
 * (LD_PRELOAD), it stands between the process and the calls that write, sync, link and rename files, and that read clocks:
 * those through libc, and those of the vDSO.
 *
 * LESSOR_FAULTS names a file with a setting a line, which is read again at every such call:
 *
 *   shift_s N        the wall clock shows N seconds more
 *   slew_ppm N       all clocks that NTP disciplines run N parts per million faster than the raw one: the wall clock,
 *                    CLOCK_MONOTONIC and CLOCK_BOOTTIME; what they have gained so far they keep
 *   sync_ms N        each sync takes N milliseconds longer
 *   sync_errno N     each sync fails with this error, and nothing is synced
 *   read_only 1      nothing is written, made or renamed: each of it fails with EROFS
 *   fail_at N        the sync with this number, from when this is set, fails with EIO, once; calls count anew from there
 *   only TEXT        only what is done to files with this in their path counts
 *   die_at N         it dies with SIGKILL at the N-th call that counts
 *   die_how N        0 before it, 1 after it, 2 in the middle of it: half of what is to be written is
 *   cut N            1: what was written and not synced is lost with it; 2: every other such write is; 0: none
 *
 * Before it dies it says where, in a file beside that one: the name of the call and the path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))real(#name))

struct settings {
    long shift_s, slew_ppm, sync_ms, sync_errno, read_only, fail_at, die_at, die_how, cut;
    char only[256];
};

/* What a write or a cut replaced, newest first. */
struct undo {
    struct undo *older;
    int fd;
    ino_t inode;
    off_t at, size;
    size_t length;
    char *old;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct undo *unsynced;
static long counted, syncs, has_failed;

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static struct settings settings(void) {
    struct settings now = {0};
    char text[1024], word[64], value[256];
    const char *path = getenv("LESSOR_FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return now;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length < 0 ? 0 : length] = 0;
    int used = 0;
    for (const char *at = text; sscanf(at, "%63s %255s%n", word, value, &used) == 2; at += used) {
        long number = atol(value);
        if (!strcmp(word, "shift_s")) now.shift_s = number;
        if (!strcmp(word, "slew_ppm")) now.slew_ppm = number;
        if (!strcmp(word, "sync_ms")) now.sync_ms = number;
        if (!strcmp(word, "sync_errno")) now.sync_errno = number;
        if (!strcmp(word, "read_only")) now.read_only = number;
        if (!strcmp(word, "fail_at")) now.fail_at = number;
        if (!strcmp(word, "die_at")) now.die_at = number;
        if (!strcmp(word, "die_how")) now.die_how = number;
        if (!strcmp(word, "cut")) now.cut = number;
        if (!strcmp(word, "only")) strcpy(now.only, value);
    }
    return now;
}

/* Whether the disk is one that no process can write to. */
static int is_read_only(const struct settings *now) {
    if (!now->read_only) return 0;
    errno = EROFS;
    return 1;
}

static void path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
}

static ino_t inode_of(int fd, off_t *size) {
    struct stat about;
    if (fstat(fd, &about)) return 0;
    if (size) *size = about.st_size;
    return about.st_ino;
}

/* Remembers what is about to be replaced. A seal is not synced, ever, and may be newer or older than its store. */
static void remember(int fd, off_t at, size_t length) {
    char path[512];
    path_of(fd, path, sizeof path);
    if (!settings().cut || strstr(path, ".seal")) return;
    struct undo *undo = calloc(1, sizeof *undo);
    undo->fd = fd, undo->at = at;
    undo->inode = inode_of(fd, &undo->size);
    undo->old = malloc(length + 1);
    ssize_t got = pread(fd, undo->old, length, at);
    undo->length = got < 0 ? 0 : (size_t)got;
    undo->older = unsynced;
    unsynced = undo;
}

/* What was written to this file is on the disk. */
static void is_synced(int fd) {
    ino_t inode = inode_of(fd, NULL);
    for (struct undo **at = &unsynced; *at;) {
        struct undo *undo = *at;
        if (undo->inode == inode) {
            *at = undo->older;
            free(undo->old);
            free(undo);
        } else {
            at = &undo->older;
        }
    }
}

static void lose_unsynced(long cut) {
    long number = 0;
    for (struct undo *undo = unsynced; undo; undo = undo->older) {
        if (inode_of(undo->fd, NULL) != undo->inode) continue;
        if (cut == 2 && ++number % 2) continue;
        if (REAL(pwrite)(undo->fd, undo->old, undo->length, undo->at) < 0) abort();
        if (cut == 1 && REAL(ftruncate)(undo->fd, undo->size)) abort();
    }
}

static void die(const struct settings *now, const char *call, const char *path) {
    char died[512], said[768];
    snprintf(died, sizeof died, "%s.died", getenv("LESSOR_FAULTS"));
    int length = snprintf(said, sizeof said, "%s %s\n", call, path);
    lose_unsynced(now->cut);
    int fd = open(died, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, said, (size_t)length) < 0) abort();
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Counts this call. Whether it is the one to die at, but not before it; then the caller has to. */
static int is_the_one(const struct settings *now, const char *call, const char *path) {
    if (!strstr(path, now->only) || ++counted != now->die_at || (now->fail_at && !has_failed)) return 0;
    if (now->die_how == 0) die(now, call, path);
    return 1;
}

static int syncs_so(int fd, const char *call, int (*sync)(int)) {
    char path[512];
    struct settings now = settings();
    path_of(fd, path, sizeof path);
    /* Not under the lock: a disk that is slow in syncing still takes writes. */
    if (now.sync_ms) usleep((useconds_t)now.sync_ms * 1000);
    pthread_mutex_lock(&lock);
    if (now.fail_at && ++syncs == now.fail_at) {
        counted = 0, has_failed = 1;
        now.sync_errno = EIO;
    }
    if (now.sync_errno) {
        pthread_mutex_unlock(&lock);
        errno = (int)now.sync_errno;
        return -1;
    }
    int dies = is_the_one(&now, call, path);
    int done = sync(fd);
    if (!done) is_synced(fd);
    if (dies) die(&now, call, path);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int fd) { return syncs_so(fd, "fsync", REAL(fsync)); }

int fdatasync(int fd) { return syncs_so(fd, "fdatasync", REAL(fdatasync)); }

ssize_t pwrite(int fd, const void *from, size_t length, off_t at) {
    char path[512];
    struct settings now = settings();
    if (is_read_only(&now)) return -1;
    path_of(fd, path, sizeof path);
    pthread_mutex_lock(&lock);
    int dies = is_the_one(&now, "pwrite", path);
    remember(fd, at, length);
    ssize_t done = REAL(pwrite)(fd, from, dies && now.die_how == 2 ? length / 2 : length, at);
    if (dies) die(&now, "pwrite", path);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int fd, const void *from, size_t length, off64_t at) { return pwrite(fd, from, length, at); }

int ftruncate(int fd, off_t size) {
    char path[512];
    struct settings now = settings();
    if (is_read_only(&now)) return -1;
    path_of(fd, path, sizeof path);
    pthread_mutex_lock(&lock);
    int dies = is_the_one(&now, "ftruncate", path);
    off_t was = 0;
    inode_of(fd, &was);
    remember(fd, size < was ? size : was, size < was ? (size_t)(was - size) : 0);
    int done = REAL(ftruncate)(fd, size);
    if (dies) die(&now, "ftruncate", path);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int rename(const char *from, const char *to) {
    struct settings now = settings();
    if (is_read_only(&now)) return -1;
    pthread_mutex_lock(&lock);
    int dies = is_the_one(&now, "rename", from);
    int done = REAL(rename)(from, to);
    if (dies) die(&now, "rename", from);
    pthread_mutex_unlock(&lock);
    return done;
}

int linkat(int from_in, const char *from, int to_in, const char *to, int flags) {
    struct settings now = settings();
    if (is_read_only(&now)) return -1;
    pthread_mutex_lock(&lock);
    int dies = is_the_one(&now, "link", to);
    int done = REAL(linkat)(from_in, from, to_in, to, flags);
    if (dies) die(&now, "link", to);
    pthread_mutex_unlock(&lock);
    return done;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    /* Settings are read only, too: that does not come here again. */
    if (flags & (O_WRONLY | O_RDWR | O_CREAT)) {
        struct settings now = settings();
        if (is_read_only(&now)) return -1;
    }
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open(path, flags | O_LARGEFILE, mode);
}

#define BILLION 1000000000LL
#define MILLION 1000000LL

/* How often the settings are read again for a clock: it is read far more often than a file is written. */
#define SETTINGS_EVERY MILLION

static pthread_mutex_t slew_lock = PTHREAD_MUTEX_INITIALIZER;

static int64_t nanos_of(clockid_t clock) {
    struct timespec now;
    if (REAL(clock_gettime)(clock, &now)) abort();
    return now.tv_sec * BILLION + now.tv_nsec;
}

/* What disciplined clocks have gained on the raw one until now, in nanoseconds. Under `slew_lock`. */
static int64_t gained(void) {
    static int64_t since, looked, ppm, sum;
    int64_t raw = nanos_of(CLOCK_MONOTONIC_RAW);
    if (!since) since = raw;
    /* In parts of a million of a nanosecond: no reading loses what it rounds off. */
    sum += (raw - since) * ppm;
    since = raw;
    if (!looked || raw - looked >= SETTINGS_EVERY) {
        looked = raw;
        ppm = settings().slew_ppm;
    }
    return sum / MILLION;
}

/* The coarse clock stands still between two interrupts, slewed or not. */
static int64_t slewed_coarse(int64_t real_coarse) {
    static int64_t last_real, last_shown;
    if (real_coarse != last_real) last_shown = real_coarse + gained();
    last_real = real_coarse;
    return last_shown;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = REAL(clock_gettime)(clock, time);
    if (done) return done;
    int is_coarse = clock == CLOCK_MONOTONIC_COARSE;
    if (is_coarse || clock == CLOCK_MONOTONIC || clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME) {
        pthread_mutex_lock(&slew_lock);
        /* Read under the lock, so that no reading is combined with an older gain. */
        int64_t now = nanos_of(clock);
        now = is_coarse ? slewed_coarse(now) : now + gained();
        pthread_mutex_unlock(&slew_lock);
        time->tv_sec = now / BILLION, time->tv_nsec = now % BILLION;
    }
    if (clock == CLOCK_REALTIME) time->tv_sec += settings().shift_s;
    return 0;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    int done = REAL(gettimeofday)(time, zone);
    if (!done) {
        clock_gettime(CLOCK_REALTIME, &now);
        time->tv_sec = now.tv_sec, time->tv_usec = now.tv_nsec / 1000;
    }
    return done;
}

/* A copy of the vDSO whose clock_gettime is the one above; the original if it cannot be made. The copy's other functions
 * are never called: a caller that looks the vDSO up by itself, as rustix does, wants this one. */
static unsigned long patched_vdso(unsigned long vdso) {
    static unsigned long copy;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)vdso;
    const Elf64_Phdr *part = (const Elf64_Phdr *)(vdso + head->e_phoff);
    void *itself = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
#if defined(__x86_64__)
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, target; jmp rax */
    const int target = 2;
    char *entry = itself ? dlsym(itself, "__vdso_clock_gettime") : NULL;
#elif defined(__aarch64__)
    unsigned char jump[16] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6}; /* ldr x16, #8; br x16; target */
    const int target = 8;
    char *entry = itself ? dlsym(itself, "__kernel_clock_gettime") : NULL;
#else
#error "no jump is known for this processor"
#endif
    if (copy || !entry) return copy ? copy : vdso;
    size_t size = 0;
    for (int i = 0; i < head->e_phnum; i++)
        if (part[i].p_type == PT_LOAD) size = part[i].p_offset + part[i].p_memsz;
    char *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return vdso;
    memcpy(made, (const void *)vdso, size);
    void *ours = (void *)clock_gettime;
    memcpy(jump + target, &ours, sizeof ours);
    memcpy(made + (entry - (char *)vdso), jump, sizeof jump);
    if (mprotect(made, size, PROT_READ | PROT_EXEC)) return vdso;
    return copy = (unsigned long)made;
}

unsigned long getauxval(unsigned long type) {
    unsigned long value = REAL(getauxval)(type);
    return type == AT_SYSINFO_EHDR && value ? patched_vdso(value) : value;
}
