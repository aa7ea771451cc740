/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * node COMMAND PROFILE [JOB-FILE [TIMES]]: a program that knows nothing of simulators uses the accel
 * node through libdrm and plain libc. Each command prints a line for every check and exits with 1 at
 * the first that is wrong. PROFILE says which driver to expect (stock, stock-6.18, 1.1, full).
 *
 * A JOB-FILE holds one register program, its operands and what it must store; see `struct head`.
 */
#define _GNU_SOURCE
#include "rocket_uapi.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xf86drm.h>

#define NODE "/dev/accel/accel0"
#define PAGE 4096u
#define MS 1000000ll
#define SENTINEL 0xa5

static const char *self;
static const char *profile;
static const char *job_file;
static int times = 1;

static void fail(const char *what, int line)
{
    printf("WRONG (line %d, errno %d %s): %s\n", line, errno, strerror(errno), what);
    fflush(stdout);
    _exit(1);
}

/* One line for each check. */
#define CHECK(what, condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(what ": " #condition, __LINE__);                                                  \
        printf("ok: %s\n", what);                                                                  \
    } while (0)

/* Needed to go on; silent when it holds. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail(#condition, __LINE__);                                                            \
    } while (0)

/* A call that must fail with this errno. */
#define CHECK_ERRNO(what, call, wanted)                                                            \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long rc_ = (long)(call);                                                                   \
        if (rc_ != -1 || errno != (wanted))                                                        \
            fail(what ": " #call " must be " #wanted, __LINE__);                                   \
        printf("ok: %s\n", what);                                                                  \
    } while (0)

static int is_stock(void) { return !strncmp(profile, "stock", 5); }

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int open_node(void)
{
    int fd = open(NODE, O_RDWR | O_CLOEXEC);
    MUST(fd >= 0);
    return fd;
}

/* ---- driver calls ---- */

struct bo {
    uint32_t handle, size;
    uint64_t iova, offset;
    uint8_t *map;
};

static struct bo create(int fd, uint32_t size)
{
    struct rocket_create_bo arg = {.size = size};
    MUST(drmIoctl(fd, ROCKET_CREATE_BO, &arg) == 0);
    return (struct bo){arg.handle, size, arg.dma_address, arg.offset, NULL};
}

static struct bo create_mapped(int fd, uint32_t size)
{
    struct bo bo = create(fd, size);
    bo.map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)bo.offset);
    MUST(bo.map != MAP_FAILED);
    return bo;
}

static int prep(int fd, uint32_t handle, int64_t deadline)
{
    struct rocket_prep_bo arg = {.handle = handle, .timeout_ns = deadline};
    return ioctl(fd, ROCKET_PREP_BO, &arg);
}

static int fini(int fd, uint32_t handle)
{
    struct rocket_fini_bo arg = {.handle = handle};
    return drmIoctl(fd, ROCKET_FINI_BO, &arg);
}

static int submit_sized(int fd, const void *jobs, uint32_t count, uint32_t size)
{
    struct rocket_submit arg = {(uintptr_t)jobs, count, size, 0};
    return drmIoctl(fd, ROCKET_SUBMIT, &arg);
}

static int submit(int fd, const struct rocket_job *jobs, uint32_t count)
{
    return submit_sized(fd, jobs, count, sizeof *jobs);
}

/* Whether a wait went well: old drivers return what was left of it (kernel-and-uapi A.4). */
static int good(int rc) { return !strcmp(profile, "stock-6.18") ? rc > 0 : rc == 0; }

/* Waits whatever signals come, always for the same moment. */
static int wait_for(int fd, uint32_t handle, int64_t deadline)
{
    struct rocket_prep_bo arg = {.handle = handle, .timeout_ns = deadline};
    return drmIoctl(fd, ROCKET_PREP_BO, &arg);
}

/* A program at an address that nothing is mapped at: the core hangs until the driver's timeout. */
static void submit_hang(int fd, const struct bo *in, const struct bo *out)
{
    struct rocket_task task = {.regcmd = 0xf0000000, .regcmd_count = 64};
    struct rocket_job job = {
        .tasks = (uintptr_t)&task,
        .in_bo_handles = (uintptr_t)&in->handle,
        .out_bo_handles = (uintptr_t)&out->handle,
        .task_count = 1,
        .task_struct_size = sizeof task,
        .in_bo_handle_count = 1,
        .out_bo_handle_count = 1,
    };
    MUST(submit(fd, &job, 1) == 0);
}

/* Memory that cannot be read or written. */
static void *nowhere(void)
{
    static void *page;
    if (!page)
        page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    return page;
}

/* ---- a job that computes ---- */

struct head {
    char magic[8]; /* "RKTJOB1" */
    uint32_t words, patches, areas, output;
};
struct area { /* where the program's addresses place it; the output's bytes are the result */
    uint32_t iova, size;
};
struct patch { /* the value of this word is an address in that area */
    uint32_t word, area;
};
#define MOST_AREAS 4

static struct {
    const struct head *head;
    const struct area *areas;
    const uint64_t *words;
    const struct patch *patches;
    const uint8_t *data;
} work;

static void load_work(void)
{
    if (work.head)
        return;
    MUST(job_file != NULL);
    int fd = open(job_file, O_RDONLY | O_CLOEXEC);
    struct stat st;
    MUST(fd >= 0 && fstat(fd, &st) == 0);
    const uint8_t *all = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    MUST(all != MAP_FAILED);
    close(fd);
    const struct head *h = (const void *)all;
    MUST(!memcmp(h->magic, "RKTJOB1", 8) && h->areas <= MOST_AREAS && h->output < h->areas);
    work.areas = (const void *)(h + 1);
    work.words = (const void *)(work.areas + h->areas);
    work.patches = (const void *)(work.words + h->words);
    work.data = (const void *)(work.patches + h->patches);
    work.head = h;
}

struct job {
    int fd;
    struct bo areas[MOST_AREAS], program;
};

/* Buffers of their own for every area, and the program with their addresses. */
static struct job job_on(int fd)
{
    load_work();
    struct job j = {.fd = fd};
    create(fd, PAGE); /* no operand lies at address zero */
    for (uint32_t i = 0; i < work.head->areas; i++)
        j.areas[i] = create_mapped(fd, work.areas[i].size);
    j.program = create_mapped(fd, work.head->words * 8);
    uint64_t *words = (uint64_t *)j.program.map;
    memcpy(words, work.words, work.head->words * 8);
    for (uint32_t i = 0; i < work.head->patches; i++) {
        struct patch p = work.patches[i];
        uint32_t value = (uint32_t)(words[p.word] >> 16);
        value += (uint32_t)j.areas[p.area].iova - work.areas[p.area].iova;
        words[p.word] = (words[p.word] & ~(0xffffffffull << 16)) | (uint64_t)value << 16;
    }
    MUST(fini(fd, j.program.handle) == 0);
    return j;
}

/* Operands in place, nothing in the output. */
static void job_fill(const struct job *j)
{
    const uint8_t *data = work.data;
    for (uint32_t i = 0; i < work.head->areas; i++) {
        uint32_t size = work.areas[i].size;
        if (i == work.head->output)
            memset(j->areas[i].map, SENTINEL, size);
        else
            memcpy(j->areas[i].map, data, size);
        MUST(fini(j->fd, j->areas[i].handle) == 0);
        data += size;
    }
}

static int job_untouched(const struct job *j)
{
    uint32_t out = work.head->output;
    for (uint32_t i = 0; i < work.areas[out].size; i++)
        if (j->areas[out].map[i] != SENTINEL)
            return 0;
    return 1;
}

static int job_right(const struct job *j)
{
    const uint8_t *want = work.data;
    for (uint32_t i = 0; i < work.head->output; i++)
        want += work.areas[i].size;
    return !memcmp(j->areas[work.head->output].map, want, work.areas[work.head->output].size);
}

static uint32_t job_output(const struct job *j) { return j->areas[work.head->output].handle; }

/* What SUBMIT is told; it must be used where it was made. */
struct request {
    struct rocket_task task;
    uint32_t in[MOST_AREAS + 1], out;
    struct rocket_job job;
};

static void job_request(const struct job *j, struct request *r)
{
    memset(r, 0, sizeof *r);
    r->task = (struct rocket_task){(uint32_t)j->program.iova, work.head->words};
    uint32_t n = 0;
    r->in[n++] = j->program.handle;
    for (uint32_t i = 0; i < work.head->areas; i++)
        if (i != work.head->output)
            r->in[n++] = j->areas[i].handle;
    r->out = job_output(j);
    r->job.tasks = (uintptr_t)&r->task;
    r->job.task_count = 1;
    r->job.task_struct_size = sizeof r->task;
    r->job.in_bo_handles = (uintptr_t)r->in;
    r->job.in_bo_handle_count = n;
    r->job.out_bo_handles = (uintptr_t)&r->out;
    r->job.out_bo_handle_count = 1;
}

static void job_submit(const struct job *j)
{
    struct request r;
    job_request(j, &r);
    MUST(submit(j->fd, &r.job, 1) == 0);
}

static int job_wait(const struct job *j)
{
    return good(wait_for(j->fd, job_output(j), now() + 60000 * MS));
}

static int job_run(const struct job *j)
{
    job_fill(j);
    job_submit(j);
    return job_wait(j) && job_right(j);
}

/* ---- commands ---- */

static void cmd_version(void)
{
    int fd = open_node();
    int major = is_stock() ? 0 : 1;
    int minor = !strcmp(profile, "full") ? 7 : !strcmp(profile, "1.1") ? 1 : 0;
    drmVersionPtr v = drmGetVersion(fd);
    MUST(v != NULL);
    CHECK("name", v->name_len == 6 && !strcmp(v->name, "rocket"));
    CHECK("date", !strcmp(v->date, "0"));
    CHECK("description", !strcmp(v->desc, "rocket DRM"));
    CHECK("version", v->version_major == major && v->version_minor == minor);
    CHECK("patch level", v->version_patchlevel == 0);
    drmFreeVersion(v);
    uint64_t cap;
    CHECK("PRIME exists", drmGetCap(fd, DRM_CAP_PRIME, &cap) == 0 && cap == 3);
    close(fd);
}

static void cmd_alloc(void)
{
    int fd = open_node();
    struct bo a = create(fd, 1000), b = create(fd, PAGE), c = create(fd, 3 * PAGE), d;
    CHECK("the first buffer lies at address 0", a.iova == 0);
    CHECK("the next one a page further", b.iova == 0x1000);
    CHECK("and so on", c.iova == 0x2000);
    CHECK("handles from 1", a.handle == 1 && b.handle == 2 && c.handle == 3);
    CHECK("mmap offsets from 4 GiB", a.offset >= 1ull << 32 && b.offset >= 1ull << 32);
    CHECK("one offset each", a.offset != b.offset && b.offset != c.offset && a.offset != c.offset);
    struct rocket_create_bo none = {.size = 0};
    CHECK_ERRNO("size 0", drmIoctl(fd, ROCKET_CREATE_BO, &none), ENOSPC);
    CHECK("a closed buffer", drmCloseBufferHandle(fd, b.handle) == 0);
    d = create(fd, PAGE);
    CHECK("leaves its handle", d.handle == b.handle);
    /* DRM extends an argument that is shorter than the driver's and cuts one that is longer. */
    struct {
        struct rocket_create_bo arg;
        uint64_t more[2];
    } grown = {.arg = {.size = PAGE}, .more = {7, 7}};
    CHECK("a grown struct", ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'd', 0x40, 40), &grown) == 0);
    CHECK("a grown struct's answer", grown.arg.handle == 4);
    CHECK_ERRNO("unreadable argument", ioctl(fd, ROCKET_CREATE_BO, nowhere()), EFAULT);
    CHECK_ERRNO("unknown driver call", ioctl(fd, _IOW('d', 0x5f, struct rocket_fini_bo), &none),
                EINVAL);
    CHECK_ERRNO("no DRM call at all", ioctl(fd, TIOCGWINSZ, &grown), ENOTTY);
    close(fd);
}

static void cmd_deadlines(void)
{
    int fd = open_node();
    struct bo in = create(fd, PAGE), out = create(fd, PAGE);
    CHECK("idle, deadline 0", good(prep(fd, out.handle, 0)));
    CHECK("idle, deadline past", good(prep(fd, out.handle, now() - MS)));
    CHECK("idle, deadline never", good(prep(fd, out.handle, INT64_MAX)));
    submit_hang(fd, &in, &out);
    CHECK("an input has no fence", good(prep(fd, in.handle, INT64_MAX)));
    CHECK_ERRNO("busy, deadline 0", prep(fd, out.handle, 0), EBUSY);
    CHECK_ERRNO("busy, deadline 1 ms ago", prep(fd, out.handle, now() - MS), EBUSY);
    CHECK_ERRNO("busy, negative deadline", prep(fd, out.handle, INT64_MIN), EBUSY);
    int64_t deadline = now() + 60 * MS;
    CHECK_ERRNO("busy, deadline in 60 ms", prep(fd, out.handle, deadline), ETIMEDOUT);
    CHECK("not before the deadline", now() >= deadline);
    CHECK_ERRNO("still busy", prep(fd, out.handle, 0), EBUSY);
    CHECK("deadline never", good(prep(fd, out.handle, INT64_MAX)));
    CHECK("idle again", good(prep(fd, out.handle, 0)));
    struct rocket_prep_bo arg = {.handle = out.handle, .reserved = 1};
    CHECK_ERRNO("reserved word", ioctl(fd, ROCKET_PREP_BO, &arg), EINVAL);
    close(fd);
}

static volatile sig_atomic_t signals;
static void on_signal(int n) { (void)n, signals++; }

static void storm(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    struct itimerval each_ms = {{0, 1000}, {0, 1000}};
    signals = 0;
    MUST(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &each_ms, NULL) == 0);
}

static void calm(void)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void cmd_signals(void)
{
    int fd = open_node();
    struct bo in = create(fd, PAGE), out = create(fd, PAGE);
    struct job j = job_on(fd);
    for (int restart = 0; restart < 2; restart++) {
        submit_hang(fd, &in, &out);
        storm(restart ? SA_RESTART : 0);
        int64_t deadline = now() + 60000 * MS;
        int rc, interrupted = 0;
        while ((rc = prep(fd, out.handle, deadline)) == -1 && errno == EINTR)
            interrupted++;
        int seen = signals;
        CHECK("a wait among signals ends well", good(rc));
        CHECK("the handler ran", seen > 0);
        if (!restart)
            CHECK("the wait was interrupted", interrupted > 0);
        submit_hang(fd, &in, &out);
        deadline = now() + 60 * MS;
        /* A retry that begins when the deadline has passed is a poll (kernel-and-uapi A.4). */
        CHECK("a deadline among signals", wait_for(fd, out.handle, deadline) == -1 &&
                                              (errno == ETIMEDOUT || errno == EBUSY));
        CHECK("not before the deadline", now() >= deadline);
        CHECK("nor for ever after", now() < deadline + 20000 * MS);
        CHECK("the rest of the wait", good(wait_for(fd, out.handle, INT64_MAX)));
        seen = signals;
        int right = 0;
        for (int i = 0; i < 30 || (signals == seen && i < 100000); i++) {
            MUST(job_run(&j));
            right++;
            /* Every other call as well: made, mapped, closed. */
            struct bo bo = create_mapped(fd, PAGE);
            MUST(munmap(bo.map, PAGE) == 0 && drmCloseBufferHandle(fd, bo.handle) == 0);
            int other = open("/dev/accel/accel0", O_RDWR);
            MUST(other >= 0 && close(other) == 0);
        }
        CHECK("jobs among signals are right", right >= 30 && signals > seen);
        calm();
    }
    close(fd);
}

static void cmd_errors(void)
{
    int fd = open_node();
    struct bo bo = create(fd, PAGE);
    CHECK("closing a buffer", drmCloseBufferHandle(fd, bo.handle) == 0);
    struct rocket_gem_close again = {.handle = bo.handle};
    CHECK_ERRNO("closing it again", drmIoctl(fd, ROCKET_GEM_CLOSE, &again), EINVAL);
    struct rocket_gem_close zero = {.handle = 0};
    CHECK_ERRNO("closing handle 0", drmIoctl(fd, ROCKET_GEM_CLOSE, &zero), EINVAL);
    CHECK_ERRNO("waiting for it", prep(fd, bo.handle, INT64_MAX), ENOENT);
    CHECK_ERRNO("flushing it", fini(fd, bo.handle), ENOENT);
    CHECK_ERRNO("a handle that never was", prep(fd, 12345, 0), ENOENT);
    struct rocket_fini_bo odd = {.handle = create(fd, PAGE).handle, .reserved = 1};
    CHECK_ERRNO("reserved word of FINI_BO", drmIoctl(fd, ROCKET_FINI_BO, &odd), EINVAL);
    struct rocket_job job = {0};
    CHECK("no jobs at all", submit(fd, &job, 0) == 0);
    CHECK_ERRNO("a job of 39 bytes", submit_sized(fd, &job, 1, 39), EINVAL);
    CHECK_ERRNO("unreadable jobs", submit(fd, nowhere(), 1), EFAULT);
    struct rocket_submit reserved = {(uintptr_t)&job, 1, sizeof job, 1};
    CHECK_ERRNO("reserved word of SUBMIT", drmIoctl(fd, ROCKET_SUBMIT, &reserved), EINVAL);
    CHECK_ERRNO("an unreadable argument", ioctl(fd, ROCKET_PREP_BO, nowhere()), EFAULT);
    struct rocket_prep_bo_ranges r = {.handle = odd.handle, .timeout_ns = INT64_MAX};
    if (!strcmp(profile, "full")) {
        struct rocket_bo_range some[2] = {{0, 64}, {128, 64}}, bad[2] = {{128, 64}, {0, 64}};
        CHECK("no ranges is the whole buffer", ioctl(fd, ROCKET_PREP_BO_RANGES, &r) == 0);
        r.range_count = 2;
        CHECK_ERRNO("ranges at null", ioctl(fd, ROCKET_PREP_BO_RANGES, &r), EFAULT);
        r.ranges = (uintptr_t)some;
        CHECK("two ranges", ioctl(fd, ROCKET_PREP_BO_RANGES, &r) == 0);
        r.ranges = (uintptr_t)bad;
        CHECK_ERRNO("descending ranges", ioctl(fd, ROCKET_PREP_BO_RANGES, &r), EINVAL);
    } else {
        CHECK_ERRNO("no ranges before 1.5", ioctl(fd, ROCKET_PREP_BO_RANGES, &r), EINVAL);
    }
    close(fd);
}

/* A malformed job: stock drivers swallow it, others return this errno (kernel-and-uapi A.5). */
#define CHECK_JOB(what, call, wanted)                                                              \
    do {                                                                                           \
        if (is_stock())                                                                            \
            CHECK(what " is swallowed", (call) == 0);                                              \
        else                                                                                       \
            CHECK_ERRNO(what, call, wanted);                                                       \
        CHECK(what " attaches no fence", good(prep(fd, out.handle, 0)));                            \
    } while (0)

static void cmd_jobs(void)
{
    int fd = open_node();
    struct bo in = create(fd, PAGE), out = create(fd, PAGE);
    struct rocket_task task = {.regcmd = 0, .regcmd_count = 8}, empty = {.regcmd = 0};
    const uint32_t bad = 999;
    const struct rocket_job sound = {
        .tasks = (uintptr_t)&task,
        .in_bo_handles = (uintptr_t)&in.handle,
        .out_bo_handles = (uintptr_t)&out.handle,
        .task_count = 1,
        .task_struct_size = sizeof task,
        .in_bo_handle_count = 1,
        .out_bo_handle_count = 1,
    };
    struct rocket_job job;
    job = sound, job.task_count = 0;
    CHECK_JOB("no tasks", submit(fd, &job, 1), EINVAL);
    job = sound, job.task_struct_size = 4;
    CHECK_JOB("a task of 4 bytes", submit(fd, &job, 1), EINVAL);
    job = sound, job.tasks = (uintptr_t)nowhere();
    CHECK_JOB("unreadable tasks", submit(fd, &job, 1), EFAULT);
    job = sound, job.tasks = 0;
    CHECK_JOB("tasks at null", submit(fd, &job, 1), EFAULT);
    job = sound, job.tasks = (uintptr_t)&empty;
    CHECK_JOB("regcmd_count 0", submit(fd, &job, 1), EINVAL);
    job = sound, job.in_bo_handles = (uintptr_t)&bad;
    CHECK_JOB("an unknown input", submit(fd, &job, 1), ENOENT);
    job = sound, job.out_bo_handles = (uintptr_t)&bad;
    CHECK_JOB("an unknown output", submit(fd, &job, 1), ENOENT);
    job = sound, job.in_bo_handles = (uintptr_t)nowhere();
    CHECK_JOB("unreadable handles", submit(fd, &job, 1), EFAULT);
    job = sound, job.in_bo_handles = (uintptr_t)&out.handle;
    CHECK_JOB("a buffer in both lists", submit(fd, &job, 1), EALREADY);
    if (!is_stock()) {
        job = sound, job.flags = 1u << 31;
        CHECK_JOB("an unknown flag", submit(fd, &job, 1), EINVAL);
        struct {
            struct rocket_job job;
            uint64_t more;
        } grown = {sound, 1};
        CHECK_JOB("a tail that is not zero", submit_sized(fd, &grown, 1, sizeof grown), E2BIG);
    }

    /* What is around a malformed job: all of it on a stock driver, else what comes before. */
    struct job first = job_on(fd), last = job_on(fd);
    struct request a, b;
    job_request(&first, &a), job_request(&last, &b);
    job_fill(&first), job_fill(&last);
    job = sound, job.task_count = 0;
    struct rocket_job three[3] = {a.job, job, b.job};
    if (is_stock())
        CHECK("a malformed job among others", submit(fd, three, 3) == 0);
    else
        CHECK_ERRNO("a malformed job among others", submit(fd, three, 3), EINVAL);
    CHECK("the one before it runs", job_wait(&first) && job_right(&first));
    CHECK("the one after it", job_wait(&last));
    CHECK("runs on stock alone", is_stock() ? job_right(&last) : job_untouched(&last));
    /* Descriptors of the first version, and as many jobs as one likes. */
    job_fill(&first);
    CHECK("a job of 40 bytes", submit_sized(fd, &a.job, 1, 40) == 0);
    CHECK("is right", job_wait(&first) && job_right(&first));
    struct rocket_job *many = calloc(500, sizeof *many);
    MUST(many != NULL);
    for (int i = 0; i < 500; i++)
        many[i] = i % 2 ? a.job : b.job;
    job_fill(&first), job_fill(&last);
    CHECK("500 jobs at once", submit(fd, many, 500) == 0);
    CHECK("are right", job_wait(&first) && job_right(&first) && job_wait(&last) && job_right(&last));
    free(many);
    close(fd);
}

static void cmd_map(void)
{
    int fd = open_node(), rw = PROT_READ | PROT_WRITE;
    struct bo bo = create(fd, 3 * PAGE);
    off_t at = (off_t)bo.offset;
    uint8_t *all = mmap(NULL, 3 * PAGE, rw, MAP_SHARED, fd, at);
    CHECK("all of a buffer", all != MAP_FAILED);
    for (unsigned i = 0; i < 3 * PAGE; i++)
        MUST(all[i] == 0);
    memset(all, 0x5a, 3 * PAGE);
    uint8_t *head = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, at);
    CHECK("its first page", head != MAP_FAILED && head[0] == 0x5a && head[PAGE - 1] == 0x5a);
    all[7] = 9;
    CHECK("both show the same memory", head[7] == 9);
    CHECK("unmapping one", munmap(head, PAGE) == 0 && all[7] == 9);
    CHECK("unmapping all", munmap(all, 3 * PAGE) == 0);
    all = mmap(NULL, 3 * PAGE, rw, MAP_SHARED, fd, at);
    CHECK("the bytes stay", all != MAP_FAILED && all[7] == 9 && all[8] == 0x5a);
    CHECK_ERRNO("a page too long", mmap(NULL, 4 * PAGE, rw, MAP_SHARED, fd, at), EINVAL);
    CHECK_ERRNO("a byte too long", mmap(NULL, 3 * PAGE + 1, rw, MAP_SHARED, fd, at), EINVAL);
    CHECK_ERRNO("no length", mmap(NULL, 0, rw, MAP_SHARED, fd, at), EINVAL);
    CHECK_ERRNO("offset 0", mmap(NULL, PAGE, rw, MAP_SHARED, fd, 0), EINVAL);
    CHECK_ERRNO("an offset that no buffer has",
                mmap(NULL, PAGE, rw, MAP_SHARED, fd, at + (1ll << 36)), EINVAL);
    CHECK_ERRNO("a private copy", mmap(NULL, PAGE, rw, MAP_PRIVATE, fd, at), EINVAL);
    void *place = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(place != MAP_FAILED);
    uint8_t *fixed = mmap(place, PAGE, rw, MAP_SHARED | MAP_FIXED, fd, at);
    CHECK("at a fixed address", fixed == place && fixed[7] == 9);
    CHECK("closing its handle", drmCloseBufferHandle(fd, bo.handle) == 0);
    CHECK_ERRNO("its offset is gone", mmap(NULL, PAGE, rw, MAP_SHARED, fd, at), EINVAL);
    CHECK("its memory is not", all[7] == 9);
    close(fd);
    all[7] = 8;
    CHECK("nor with the file closed", fixed[7] == 8);
}

static void cmd_dup(void)
{
    int fd = open_node();
    struct bo bo = create(fd, PAGE);
    int other = dup(fd), high = fcntl(fd, F_DUPFD_CLOEXEC, 100), third = dup2(fd, 200);
    CHECK("three more descriptors", other >= 0 && high >= 100 && third == 200);
    CHECK("one file", create(other, PAGE).handle == 2 && create(high, PAGE).handle == 3);
    MUST(close(fd) == 0 && close(high) == 0 && close(third) == 0);
    CHECK("it lives on", good(prep(other, bo.handle, INT64_MAX)));
    bo.map = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, other, (off_t)bo.offset);
    CHECK("and maps", bo.map != MAP_FAILED);
    struct job j = job_on(other);
    CHECK("and computes", job_run(&j));
    int next = open_node();
    CHECK("another open is another file", create(next, PAGE).iova == 0);
    CHECK("dup2 over a file closes it", dup2(other, next) == next && create(next, PAGE).iova != 0);
    close(other), close(next);
    CHECK_ERRNO("closed is closed", fcntl(other, F_GETFD), EBADF);
    CHECK("and answers no call", prep(other, bo.handle, 0) == -1);
}

/* The end of a child, which must be a good one. */
static int ended_well(pid_t pid)
{
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, 0)) == -1 && errno == EINTR)
        ;
    return got == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void cmd_fork(void)
{
    int fd = open_node();
    struct job j = job_on(fd);
    struct bo shared = create_mapped(fd, PAGE);
    uint32_t before = shared.handle;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        CHECK("child: the parent's buffer", good(prep(fd, before, INT64_MAX)));
        CHECK("child: a buffer of the same file", create(fd, PAGE).handle == before + 1);
        CHECK("child: computes on it", job_run(&j));
        shared.map[0] = 77;
        int own = open_node();
        CHECK("child: a file of its own", create(own, PAGE).iova == 0);
        struct job mine = job_on(own);
        CHECK("child: computes on that", job_run(&mine));
        exit(0);
    }
    CHECK("the child ended well", ended_well(pid));
    CHECK("its mapping was ours", shared.map[0] == 77);
    CHECK("its buffer stayed in the file", good(prep(fd, before + 1, 0)));
    CHECK("the parent computes on", job_run(&j));
    /* Both at once on one file. */
    pid = fork();
    MUST(pid >= 0);
    struct job k = job_on(fd);
    for (int i = 0; i < 20; i++)
        MUST(job_run(&k));
    if (pid == 0)
        exit(0);
    CHECK("parent and child at once", ended_well(pid));
    close(fd);
}

/* What an exec'd copy of this program finds: `node exec-child PROFILE FD OPEN HANDLE`. */
static void exec_child(char **argv)
{
    int fd = atoi(argv[0]), open = atoi(argv[1]);
    uint32_t handle = (uint32_t)atoi(argv[2]);
    if (!open) {
        CHECK_ERRNO("child: closed by exec", fcntl(fd, F_GETFD), EBADF);
        return;
    }
    CHECK("child: still open", fcntl(fd, F_GETFD) == 0);
    CHECK("child: the same file", good(prep(fd, handle, INT64_MAX)));
    CHECK("child: a new buffer", create(fd, PAGE).handle == handle + 1);
}

static void exec_with(int fd, int open, uint32_t handle)
{
    char number[3][16];
    snprintf(number[0], 16, "%d", fd);
    snprintf(number[1], 16, "%d", open);
    snprintf(number[2], 16, "%u", handle);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        execl(self, self, "exec-child", profile, number[0], number[1], number[2], (char *)NULL);
        fail("exec", __LINE__);
    }
    CHECK("the child ended well", ended_well(pid));
}

static void cmd_exec(void)
{
    int closed = open(NODE, O_RDWR | O_CLOEXEC), kept = open(NODE, O_RDWR);
    CHECK("O_CLOEXEC sets the flag", fcntl(closed, F_GETFD) == FD_CLOEXEC);
    CHECK("without it there is none", fcntl(kept, F_GETFD) == 0);
    struct bo bo = create(kept, PAGE);
    exec_with(closed, 0, 0);
    exec_with(kept, 1, bo.handle);
    CHECK("the child's buffer stayed", good(prep(kept, bo.handle + 1, 0)));
    MUST(fcntl(kept, F_SETFD, FD_CLOEXEC) == 0);
    exec_with(kept, 0, 0);
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    MUST(sendmsg(socket, &m, 0) == 1);
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd;
    struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    MUST(recvmsg(socket, &m, 0) == 1 && CMSG_FIRSTHDR(&m) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void cmd_pass(void)
{
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        int fd = receive_fd(pair[1]);
        CHECK("child: a buffer of the sender", good(prep(fd, 1, INT64_MAX)));
        struct stat st;
        CHECK("child: it is the device", fstat(fd, &st) == 0 && S_ISCHR(st.st_mode));
        struct job j = job_on(fd);
        CHECK("child: computes", job_run(&j));
        exit(0);
    }
    int fd = open_node();
    MUST(create(fd, PAGE).handle == 1);
    send_fd(pair[0], fd);
    close(fd); /* the child's descriptor alone keeps the file */
    CHECK("the child ended well", ended_well(pid));
}

static void cmd_files(void)
{
    int one = open_node(), two = open_node();
    struct bo a = create_mapped(one, PAGE), b = create_mapped(two, PAGE);
    CHECK("two files, equal addresses", a.iova == 0 && b.iova == 0);
    CHECK("equal handles", a.handle == 1 && b.handle == 1);
    a.map[0] = 1, b.map[0] = 2;
    MUST(fini(one, 1) == 0 && fini(two, 1) == 0 && good(prep(one, 1, 0)) && good(prep(two, 1, 0)));
    CHECK("different memory", a.map[0] == 1 && b.map[0] == 2);
    struct job j = job_on(one), k = job_on(two);
    CHECK("both compute", job_run(&j) && job_run(&k));
    CHECK("with equal addresses", j.program.iova == k.program.iova);
    close(one);
    CHECK("the other stays", good(prep(two, 1, 0)) && job_run(&k));
    close(two);
}

static int is_device(mode_t mode, unsigned major_number, unsigned minor_number)
{
    return S_ISCHR(mode) && major_number == 261 && minor_number == 0;
}
#define IS_DEVICE(st) is_device((st).st_mode, major((st).st_rdev), minor((st).st_rdev))

static int starts_with_accel(const struct dirent *d) { return !strncmp(d->d_name, "accel", 5); }

static void cmd_stat(void)
{
    int fd = open_node();
    struct stat st;
    CHECK("stat", stat(NODE, &st) == 0 && IS_DEVICE(st));
    CHECK("mode 0660", (st.st_mode & 07777) == 0660 && st.st_size == 0);
    CHECK("lstat", lstat(NODE, &st) == 0 && IS_DEVICE(st));
    CHECK("fstat", fstat(fd, &st) == 0 && IS_DEVICE(st));
    CHECK("fstatat", fstatat(AT_FDCWD, NODE, &st, 0) == 0 && IS_DEVICE(st));
    CHECK("a way with dots", stat("/dev/../dev//accel/./accel0", &st) == 0 && IS_DEVICE(st));
    struct statx x;
    CHECK("statx", statx(AT_FDCWD, NODE, 0, STATX_BASIC_STATS, &x) == 0 &&
                       is_device(x.stx_mode, x.stx_rdev_major, x.stx_rdev_minor));
    CHECK("statx of the file", statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) == 0 &&
                                   is_device(x.stx_mode, x.stx_rdev_major, x.stx_rdev_minor));
    CHECK("the folder", stat("/dev/accel", &st) == 0 && S_ISDIR(st.st_mode));
    int dir = open("/dev/accel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK("fstatat in the folder", fstatat(dir, "accel0", &st, 0) == 0 && IS_DEVICE(st));
    int through = openat(dir, "accel0", O_RDWR | O_CLOEXEC);
    CHECK("openat in the folder", through >= 0 && create(through, PAGE).iova == 0);
    close(through), close(dir);
    CHECK("access", access(NODE, R_OK | W_OK) == 0);
    CHECK_ERRNO("no second node", open("/dev/accel/accel1", O_RDWR), ENOENT);
    CHECK_ERRNO("no node below the node", open("/dev/accel/accel0/x", O_RDWR), ENOTDIR);
    char link[64] = "", name[32];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CHECK("the file's link", readlink(name, link, sizeof link) == sizeof NODE - 1 &&
                                 !strcmp(link, NODE));
    CHECK("a link cut short", readlink(name, link, 4) == 4 && !memcmp(link, "/dev", 4));
    char *real = realpath(NODE, NULL);
    CHECK("realpath", real && !strcmp(real, NODE));
    free(real);

    DIR *folder = opendir("/dev/accel");
    MUST(folder != NULL);
    int nodes = 0, others = 0;
    for (struct dirent *d; (d = readdir(folder));) {
        int dots = !strcmp(d->d_name, ".") || !strcmp(d->d_name, "..");
        nodes += !strcmp(d->d_name, "accel0") && d->d_type == DT_CHR;
        others += !dots && strcmp(d->d_name, "accel0");
    }
    CHECK("readdir: one character device", nodes == 1 && others == 0);
    closedir(folder);
    struct dirent **list;
    int n = scandir("/dev/accel", &list, starts_with_accel, alphasort);
    CHECK("scandir", n == 1 && !strcmp(list[0]->d_name, "accel0") && list[0]->d_type == DT_CHR);
    free(list[0]), free(list);
    glob_t g = {0};
    CHECK("glob", glob("/dev/accel/accel*", 0, NULL, &g) == 0 && g.gl_pathc == 1 &&
                      !strcmp(g.gl_pathv[0], NODE));
    globfree(&g);
    glob_t none = {0};
    CHECK("glob of nothing", glob("/dev/accel/card*", 0, NULL, &none) == GLOB_NOMATCH);
    FILE *f = fopen("/sys/dev/char/261:0/uevent", "re");
    char line[64] = "";
    CHECK("the number leads to the class", f && fgets(line, sizeof line, f) &&
                                               !strcmp(line, "MAJOR=261\n"));
    fclose(f);
    close(fd);
    /* Other devices and files are what they were. */
    CHECK("/dev/null", stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode) &&
                           major(st.st_rdev) == 1);
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK("a socket", fstat(pair[0], &st) == 0 && S_ISSOCK(st.st_mode));
    /* qemu-user has an answer of its own for numbers that it does not know. */
    CHECK("is no device", ioctl(pair[0], ROCKET_SUBMIT, &st) == -1 &&
                              (errno == ENOTTY || errno == ENOSYS));
}

#define THREADS 8
static int shared_file = -1;

static void *thread_body(void *arg)
{
    int fd = shared_file >= 0 ? shared_file : open_node();
    struct job j = job_on(fd);
    for (int i = 0; i < 15; i++)
        MUST(job_run(&j));
    if (fd != shared_file)
        close(fd);
    return arg;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    load_work();
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, thread_body, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
}

static void cmd_threads(void)
{
    run_threads();
    CHECK("8 threads with a file each", 1);
    shared_file = open_node();
    run_threads();
    CHECK("8 threads on one file", 1);
    close(shared_file);
}

/* A thread that waits does not hold up another on the same file. */
static struct bo waited_for;
static void *waiter(void *arg)
{
    MUST(good(wait_for(shared_file, waited_for.handle, INT64_MAX)));
    return arg;
}

static void cmd_meanwhile(void)
{
    shared_file = open_node();
    struct bo in = create(shared_file, PAGE);
    waited_for = create(shared_file, PAGE);
    submit_hang(shared_file, &in, &waited_for);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, waiter, NULL) == 0);
    /* Whenever the thread gets there: calls go on until the job has ended. */
    int calls = 0;
    while (prep(shared_file, waited_for.handle, 0) == -1) {
        MUST(errno == EBUSY);
        MUST(drmCloseBufferHandle(shared_file, create(shared_file, PAGE).handle) == 0);
        calls++;
    }
    CHECK("calls while another thread waits", calls > 0);
    MUST(pthread_join(thread, NULL) == 0);
    close(shared_file);
}

static void cmd_cores(void)
{
    int fds[3];
    struct bo in[3], out[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = open_node();
        in[i] = create(fds[i], PAGE), out[i] = create(fds[i], PAGE);
    }
    for (int i = 0; i < 3; i++)
        submit_hang(fds[i], &in[i], &out[i]);
    for (int i = 0; i < 3; i++)
        CHECK_ERRNO("at work", prep(fds[i], out[i].handle, 0), EBUSY);
    for (int i = 0; i < 3; i++)
        CHECK("done", good(wait_for(fds[i], out[i].handle, INT64_MAX)));
}

static void cmd_hang(void)
{
    int fd = open_node();
    struct job j = job_on(fd);
    job_fill(&j);
    struct request r;
    job_request(&j, &r);
    r.task.regcmd = 0xf0000000;
    int64_t begun = now();
    MUST(submit(fd, &r.job, 1) == 0);
    CHECK("waiting for a job that hangs", job_wait(&j));
    int64_t took = now() - begun;
    CHECK("ends after the driver's timeout, 500 ms", took >= 450 * MS && took < 30000 * MS);
    CHECK("nothing was stored", job_untouched(&j));
    CHECK("the next job runs", job_run(&j));
    close(fd);
}

static void cmd_compute(void)
{
    int fd = open_node();
    struct job j = job_on(fd);
    for (int i = 0; i < times; i++)
        MUST(job_run(&j));
    CHECK("right every time", 1);
    close(fd);
}

static void cmd_prime(void)
{
    int one = open_node(), two = open_node(), fd = -1;
    struct bo bo = create_mapped(one, PAGE);
    create(two, PAGE);
    CHECK("export", drmPrimeHandleToFD(one, bo.handle, DRM_CLOEXEC | DRM_RDWR, &fd) == 0);
    CHECK("with its flag", fcntl(fd, F_GETFD) == FD_CLOEXEC);
    uint32_t handle = 0;
    CHECK("import elsewhere", drmPrimeFDToHandle(two, fd, &handle) == 0 && handle == 2);
    CHECK("import at home", drmPrimeFDToHandle(one, fd, &handle) == 0 && handle == bo.handle);
    int foreign = memfd_create("foreign", MFD_CLOEXEC);
    MUST(foreign >= 0 && ftruncate(foreign, PAGE) == 0);
    CHECK("a foreign file", drmPrimeFDToHandle(two, foreign, &handle) != 0 && errno == EINVAL);
    CHECK("no file", drmPrimeFDToHandle(two, 999, &handle) != 0 && errno == EBADF);
    CHECK("no buffer", drmPrimeHandleToFD(one, 99, 0, &fd) != 0 && errno == ENOENT);
    close(one);
    CHECK("it outlives its file", good(prep(two, 2, INT64_MAX)));
    close(two);
}

/* Holds a hanging job, buffers and files, says so, and waits to be killed. */
static void cmd_hold(void)
{
    int fd = open_node(), other = open_node();
    struct bo in = create_mapped(fd, PAGE), out = create_mapped(fd, 64 * PAGE);
    create_mapped(other, PAGE);
    submit_hang(fd, &in, &out);
    submit_hang(fd, &in, &out);
    printf("holding %d\n", (int)getpid());
    fflush(stdout);
    wait_for(fd, out.handle, INT64_MAX);
    CHECK("nobody killed this process", 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} commands[] = {
    {"version", cmd_version}, {"alloc", cmd_alloc},     {"deadlines", cmd_deadlines},
    {"signals", cmd_signals}, {"errors", cmd_errors},   {"jobs", cmd_jobs},
    {"map", cmd_map},         {"dup", cmd_dup},         {"fork", cmd_fork},
    {"exec", cmd_exec},       {"pass", cmd_pass},       {"files", cmd_files},
    {"stat", cmd_stat},       {"threads", cmd_threads}, {"meanwhile", cmd_meanwhile},
    {"cores", cmd_cores},     {"hang", cmd_hang},       {"compute", cmd_compute},
    {"prime", cmd_prime},     {"hold", cmd_hold},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    self = argv[0];
    if (argc < 3) {
        fprintf(stderr, "usage: node COMMAND PROFILE [JOB-FILE [TIMES]]\n");
        return 2;
    }
    profile = argv[2];
    if (!strcmp(argv[1], "exec-child") && argc == 6) {
        exec_child(argv + 3);
        return 0;
    }
    job_file = argc > 3 ? argv[3] : NULL;
    times = argc > 4 ? atoi(argv[4]) : 1;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            commands[i].run();
            return 0;
        }
    fprintf(stderr, "node: no command %s\n", argv[1]);
    return 2;
}
