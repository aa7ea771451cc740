/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs in the virtual machine: answers as the NPU's registers do, and drives the
 * rocket driver through its interface. Each check prints one line, "check NAME
 * VALUE", which tests/vm/run compares with what it expects of that driver.
 */
#define _GNU_SOURCE
#include <drm/drm.h>
#include <drm/rocket_accel.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Built with the header of our series, for the driver that has it. */
#ifdef DRM_IOCTL_ROCKET_PREP_BO_RANGES
#define OURS 1
#else
#define OURS 0
#endif

/* As in tests/vm/board.dts. */
#define WINDOW 0x7f000000ull
#define WINDOW_BYTES 0x200000
#define CORES 3
#define CORE_STRIDE 0x10000
#define GICD 0x08000000ull
#define FIRST_SPI 100

/* PC block (kernel-and-uapi B.2). */
#define OPERATION_ENABLE 0x08
#define BASE_ADDRESS 0x10
#define INTERRUPT_MASK 0x20
#define INTERRUPT_CLEAR 0x24
#define RAW_STATUS 0x2c
#define TASK_CON 0x30
#define DPU_0 0x100
#define PPU_0 0x400

static volatile uint8_t *window;
static volatile uint32_t *gicd;

/* How long jobs take that begin now, and what the fake NPU saw. */
static atomic_int delay_ms[CORES], silent[CORES], kicks[CORES];
static atomic_uint task_con[CORES], mask_seen[CORES], raise_bits = DPU_0;

static volatile uint32_t *reg(int core, int offset)
{
	return (volatile uint32_t *)(window + core * CORE_STRIDE + offset);
}

/* How often fakepower.c has reset the core. */
static volatile uint32_t *reset_count(int core)
{
	return (volatile uint32_t *)(window + 0x1f0000 + 4 * core);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void pause_ms(int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* Registers are plain memory, so that somebody has to be the hardware. */
static void *answer(void *argument)
{
	int core = (int)(intptr_t)argument;
	unsigned int spi = 32 + FIRST_SPI + core;

	for (;;) {
		uint64_t started, length;

		while (*reg(core, OPERATION_ENABLE) != 1)
			usleep(50);
		started = now_ns();
		length = atomic_load(&delay_ms[core]) * 1000000ull;
		atomic_store(&task_con[core], *reg(core, TASK_CON));
		atomic_store(&mask_seen[core], *reg(core, INTERRUPT_MASK));
		atomic_fetch_add(&kicks[core], 1);
		if (atomic_load(&silent[core])) {
			/* It hangs until it is reset, which clears its registers. */
			for (uint32_t resets = *reset_count(core); *reset_count(core) == resets;)
				usleep(1000);
			continue;
		}
		while (now_ns() - started < length)
			usleep(100);
		*reg(core, INTERRUPT_CLEAR) = 0;
		*reg(core, RAW_STATUS) = atomic_load(&raise_bits);
		__sync_synchronize();
		gicd[0x200 / 4 + spi / 32] = 1u << (spi % 32);
		/* The driver stops the core and clears all, and may have started it again by now. */
		while (*reg(core, INTERRUPT_CLEAR) == 0)
			usleep(20);
		*reg(core, RAW_STATUS) = 0;
	}
	return NULL;
}

static void check(const char *name, const char *format, ...)
{
	va_list args;

	printf("check %s ", name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

static int call(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument) < 0 ? errno : 0;
}

static int open_npu(void)
{
	return open("/dev/accel/accel0", O_RDWR | O_CLOEXEC);
}

struct bo {
	uint32_t handle;
	uint64_t address;
};

static struct bo create(int fd, uint32_t size)
{
	struct drm_rocket_create_bo a = { .size = size };

	if (call(fd, DRM_IOCTL_ROCKET_CREATE_BO, &a))
		perror("CREATE_BO");
	return (struct bo){ a.handle, a.dma_address };
}

/* A job as the kernel has it, in the larger of all sizes. */
struct job {
	struct drm_rocket_job v1;
	uint8_t tail[64];
};

static int submit_sized(int fd, void *jobs, uint32_t count, uint32_t size)
{
	struct drm_rocket_submit s = {
		.jobs = (uintptr_t)jobs, .job_count = count, .job_struct_size = size,
	};

	return call(fd, DRM_IOCTL_ROCKET_SUBMIT, &s);
}

/* A file with an input, an output and a job on them. */
struct client {
	int fd;
	struct bo in, out;
	struct drm_rocket_task tasks[8];
};

static struct client client(void)
{
	struct client c = { .fd = open_npu() };

	if (c.fd < 0)
		return c;
	c.in = create(c.fd, 4096);
	c.out = create(c.fd, 8192);
	for (int i = 0; i < 8; i++)
		c.tasks[i] = (struct drm_rocket_task){ .regcmd = c.in.address, .regcmd_count = 108 };
	return c;
}

/* Mainline's driver must not be met by a file that closes before its last job is freed: see U1. */
static void finish(struct client *c)
{
	pause_ms(50);
	close(c->fd);
}

/* 48 bytes: the v1 layout, flags and a reserved word. */
static int submit_flags(struct client *c, int tasks, uint32_t flags)
{
	uint8_t bytes[48] = { 0 };
	struct drm_rocket_job job = {
		.tasks = (uintptr_t)c->tasks,
		.in_bo_handles = (uintptr_t)&c->in.handle,
		.out_bo_handles = (uintptr_t)&c->out.handle,
		.task_count = tasks,
		.task_struct_size = sizeof(struct drm_rocket_task),
		.in_bo_handle_count = 1,
		.out_bo_handle_count = 1,
	};

	memcpy(bytes, &job, 40);
	memcpy(bytes + 40, &flags, 4);
	return submit_sized(c->fd, bytes, 1, 48);
}

static int submit(struct client *c)
{
	return submit_flags(c, 1, 0);
}

/* The second word is `reserved` in mainline and flags in ours. */
static int prep_flags(struct client *c, int ms, uint32_t flags)
{
	struct drm_rocket_prep_bo a = {
		.handle = c->out.handle, .timeout_ns = now_ns() + ms * 1000000ll,
	};

	memcpy((uint8_t *)&a + 4, &flags, 4);
	return call(c->fd, DRM_IOCTL_ROCKET_PREP_BO, &a);
}

static int prep(struct client *c, int ms)
{
	return prep_flags(c, ms, 0);
}

/* Arguments of a call are evaluated in any order; these are not. */
static int then_prep(struct client *c, int error)
{
	int waited = prep(c, 2000);

	return error ? error : waited;
}

static void set_delay(int ms)
{
	for (int i = 0; i < CORES; i++)
		atomic_store(&delay_ms[i], ms);
}

static void forget_kicks(void)
{
	for (int i = 0; i < CORES; i++)
		atomic_store(&kicks[i], 0);
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

static void core_is(int core, const char *what)
{
	char name[32], path[64];

	snprintf(name, sizeof(name), "%llx.npu", WINDOW + (uint64_t)core * CORE_STRIDE);
	snprintf(path, sizeof(path), "/sys/bus/platform/drivers/rocket/%s", what);
	write_file(path, name);
}

/* The number that follows `key` in a file, -1 where it is not. */
static long long number_in(const char *path, const char *key)
{
	char text[8192], *at;
	int fd = open(path, O_RDONLY);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	close(fd);
	if (len < 0)
		return -1;
	text[len] = 0;
	at = strstr(text, key);
	return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

static long long busy_of_core(const char *what, int core)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/platform/devices/%llx.npu/npu_%s",
		 WINDOW + (uint64_t)core * CORE_STRIDE, what);
	return number_in(path, "");
}

static long long busy_of_file(int fd, int core)
{
	char path[64], key[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	snprintf(key, sizeof(key), "drm-engine-npu%d:", core);
	return number_in(path, key);
}

static long long busy_of_file_ms(int fd)
{
	long long ns = 0;

	for (int i = 0; i < CORES; i++) {
		long long one = busy_of_file(fd, i);

		if (one < 0)
			return -1;
		ns += one;
	}
	return ns / 1000000;
}

static void version(void)
{
	char name[16] = { 0 };
	struct drm_version v = { .name = name, .name_len = sizeof(name) - 1 };
	int fd = open_npu();

	call(fd, DRM_IOCTL_VERSION, &v);
	check("version", "%s %d.%d", name, v.version_major, v.version_minor);
	close(fd);
}

/* The table of kernel-and-uapi A.5. */
static void refusals(void)
{
	struct client c = client();
	struct job job = { 0 };
	struct drm_rocket_job *j = &job.v1;
	uint32_t bad = 77;

#define FRESH()									\
	do {									\
		memset(&job, 0, sizeof(job));					\
		j->tasks = (uintptr_t)c.tasks;					\
		j->task_count = 1;						\
		j->task_struct_size = 8;					\
		j->in_bo_handles = (uintptr_t)&c.in.handle;			\
		j->in_bo_handle_count = 1;					\
		j->out_bo_handles = (uintptr_t)&c.out.handle;			\
		j->out_bo_handle_count = 1;					\
	} while (0)
	FRESH(); j->task_struct_size = 4;
	check("task-size-4", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); j->tasks = 8;
	check("tasks-unreadable", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); c.tasks[0].regcmd_count = 0;
	check("no-commands", "%d", submit_sized(c.fd, &job, 1, 48));
	c.tasks[0].regcmd_count = 108;
	FRESH(); j->in_bo_handles = (uintptr_t)&bad;
	check("bad-input", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); j->out_bo_handles = (uintptr_t)&bad;
	check("bad-output", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); j->out_bo_handles = (uintptr_t)&c.in.handle;
	check("twice", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); j->task_count = 0;
	check("no-tasks", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); ((uint8_t *)&job)[40] = 8;
	check("flag-bit-3", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); ((uint8_t *)&job)[44] = 1;
	check("reserved", "%d", submit_sized(c.fd, &job, 1, 48));
	FRESH(); ((uint8_t *)&job)[60] = 1;
	check("unknown-tail", "%d", submit_sized(c.fd, &job, 1, 64));
	FRESH();
	check("size-39", "%d", submit_sized(c.fd, &job, 1, 39));
	for (int bit = 0; bit < 3; bit++) {
		FRESH(); ((uint8_t *)&job)[40] = 1 << bit;
		atomic_store(&raise_bits, bit == 2 ? PPU_0 : DPU_0);
		check(bit == 0 ? "flag-bit-0" : bit == 1 ? "flag-bit-1" : "flag-bit-2", "%d",
		      then_prep(&c, submit_sized(c.fd, &job, 1, 48)));
	}
	atomic_store(&raise_bits, DPU_0);
	FRESH();
	check("size-40", "%d", then_prep(&c, submit_sized(c.fd, &job, 1, 40)));
	finish(&c);
}

static void waits(void)
{
	struct client c = client();
	uint64_t t;

	set_delay(200);
	submit(&c);
	t = now_ns();
	check("poll", "%d", prep(&c, -1));
	check("deadline", "%d", prep(&c, 50));
	check("done", "%d", prep(&c, 2000));
	t = (now_ns() - t) / 1000000;
	check("took-200", "%s", t >= 190 && t < 400 ? "yes" : "no");
	set_delay(0);

	/* Three tasks one by one, and three as a batch. */
	forget_kicks();
	check("tasks", "%d", then_prep(&c, submit_flags(&c, 3, 0)));
	int each = 0, con = 0;
	for (int i = 0; i < CORES; i++)
		each += atomic_load(&kicks[i]);
	forget_kicks();
	int refused = submit_flags(&c, 3, 1), waited = prep(&c, 2000);
	int batch = 0;
	for (int i = 0; i < CORES; i++) {
		batch += atomic_load(&kicks[i]);
		if (atomic_load(&kicks[i]))
			con = atomic_load(&task_con[i]);
	}
	check("kicks", "%d then %d %d %d, control 0x%x", each, refused, waited, batch, con);
	finish(&c);
}

/* Independent jobs on three files: which cores ran any. */
static void spread(const char *name)
{
	struct client c[CORES];
	char used[CORES * 2 + 1] = { 0 };
	int error = 0;

	set_delay(30);
	forget_kicks();
	for (int i = 0; i < CORES; i++)
		c[i] = client();
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < CORES; i++)
			error |= submit(&c[i]);
		for (int i = 0; i < CORES; i++)
			error |= prep(&c[i], 3000);
	}
	for (int i = 0; i < CORES; i++) {
		strcat(used, atomic_load(&kicks[i]) ? "x" : "-");
		finish(&c[i]);
	}
	check(name, "%s %d", used, error);
	set_delay(0);
}

/* Works in turn on the core that is left: a file that is open goes on. */
static void open_over_unbind(void)
{
	struct client c = client();
	char result[64] = { 0 };

	for (int core = 0; core < CORES; core++) {
		char one[16];

		for (int i = 0; i < CORES; i++)
			if (i != core)
				core_is(i, "unbind");
		forget_kicks();
		int error = then_prep(&c, submit(&c));

		snprintf(one, sizeof(one), "%d/%d ", error, atomic_load(&kicks[core]));
		strcat(result, one);
		for (int i = 0; i < CORES; i++)
			if (i != core)
				core_is(i, "bind");
	}
	check("open-over-unbind", "%s", result);

	/* In the middle of a job, with one more queued. */
	set_delay(150);
	int running = -1;
	forget_kicks();
	submit(&c);
	submit(&c);
	pause_ms(50);
	for (int i = 0; i < CORES; i++)
		if (atomic_load(&kicks[i]))
			running = i;
	core_is(running, "unbind");
	check("unbind-in-flight", "%d", prep(&c, 3000));
	set_delay(0);
	check("after-unbind", "%d", then_prep(&c, submit(&c)));
	core_is(running, "bind");
	finish(&c);
}

static void hang(void)
{
	struct client c = client();
	uint64_t t = now_ns();

	for (int i = 0; i < CORES; i++)
		atomic_store(&silent[i], 1);
	submit(&c);
	int plain = prep(&c, 3000);
	t = (now_ns() - t) / 1000000;
	for (int i = 0; i < CORES; i++)
		atomic_store(&silent[i], 0);
	check("hang", "%d %s", plain, t >= 450 && t < 1500 ? "500ms" : "other");
	if (OURS) {
		long long ms = busy_of_file_ms(c.fd);

		check("hung-job-counts", "%s", ms >= 450 && ms < 1500 ? "until its reset" : "other");
	}
	int told = prep_flags(&c, 0, 1), again = prep_flags(&c, 0, 1);
	check("hang-told", "%d %d", told, again);
	pause_ms(20);
	check("after-hang", "%d", then_prep(&c, submit(&c)));
	finish(&c);
}

#define TRACING "/sys/kernel/tracing/"

/* The scheduler's own times of the jobs in the trace, from run to done, in us. */
static long long traced_us(int *jobs)
{
	static char text[65536];
	long long sum = 0, started = 0;
	int fd = open(TRACING "trace", O_RDONLY);
	size_t len = 0;
	ssize_t got;

	while ((got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += got;
	close(fd);
	text[len] = 0;
	*jobs = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		char *run = strstr(line, ": drm_sched_job_run:"), *done = strstr(line, ": drm_sched_job_done:");
		char *end = run ? run : done, *at = end;
		long long seconds, us;

		if (!end)
			continue;
		while (at > line && at[-1] != ' ')
			at--;
		if (sscanf(at, "%lld.%lld", &seconds, &us) != 2)
			continue;
		if (run) {
			started = seconds * 1000000 + us;
		} else if (started) {
			sum += seconds * 1000000 + us - started;
			started = 0;
			(*jobs)++;
		}
	}
	return sum;
}

/* Busy time against what the scheduler's trace events say of the same jobs, one at a time. */
static void against_the_trace(void)
{
	struct client c = client();
	int jobs;

	set_delay(220);
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
	write_file(TRACING "events/gpu_scheduler/drm_sched_job_run/enable", "1");
	write_file(TRACING "events/gpu_scheduler/drm_sched_job_done/enable", "1");
	for (int i = 0; i < 4; i++)
		then_prep(&c, submit(&c));
	write_file(TRACING "events/gpu_scheduler/enable", "0");
	long long traced = traced_us(&jobs), busy = 0;

	for (int i = 0; i < CORES; i++)
		busy += busy_of_file(c.fd, i) / 1000;
	long long off = llabs(traced - busy) / (jobs ? jobs : 1);
	check("traced", "%d jobs, %s", jobs, off <= 1000 || off * 20 <= traced / 4 ? "agree" : "differ");
	printf("usage: traced %lld us, fdinfo %lld us, %lld us a job apart\n", traced, busy, off);
	set_delay(0);
	finish(&c);
}

static void usage(void)
{
	struct client c = client(), idle = client(), other = client();
	long long before, during, after;
	long long core[CORES], grown = 0;

	set_delay(300);
	before = busy_of_file_ms(c.fd);
	check("idle-file", "%lld %lld", before, busy_of_file_ms(idle.fd));
	for (int i = 0; i < CORES; i++)
		core[i] = busy_of_core("busy_ns", i);
	submit(&c);
	pause_ms(150);
	during = busy_of_file_ms(c.fd);
	prep(&c, 3000);
	after = busy_of_file_ms(c.fd);
	for (int i = 0; i < CORES; i++)
		grown += busy_of_core("busy_ns", i) - core[i];
	check("during", "%s", during > 100 && during < 250 ? "grows" : "other");
	check("after", "%s", after >= 295 && after < 330 ? "300" : "other");
	check("core-agrees", "%s", llabs(grown / 1000000 - after) <= 1 ? "yes" : "no");
	check("still-idle", "%lld", busy_of_file_ms(idle.fd));
	printf("usage: during %lld ms, after %lld ms, cores %lld ms\n", during, after, grown / 1000000);

	/* Three to one. */
	set_delay(100);
	for (int i = 0; i < 3; i++) {
		submit(&idle);
		prep(&idle, 3000);
	}
	submit(&other);
	prep(&other, 3000);
	long long three = busy_of_file_ms(idle.fd), one = busy_of_file_ms(other.fd);
	check("three-to-one", "%s", one > 0 && three * 10 >= one * 27 && three * 10 <= one * 33 ? "yes" : "no");
	printf("usage: %lld ms and %lld ms\n", three, one);

	/* A closed file's time is not lost. */
	long long total = 0;
	for (int i = 0; i < CORES; i++)
		total += busy_of_core("busy_ns", i);
	finish(&idle);
	long long kept = 0;
	for (int i = 0; i < CORES; i++)
		kept += busy_of_core("busy_ns", i);
	check("closed-file", "%s", kept >= total ? "kept" : "lost");
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", c.fd);
	check("resident", "%lld KiB", number_in(path, "drm-resident-memory:"));
	set_delay(0);
	finish(&c);
	finish(&other);
}

/* Three files at once, looked at all the time: no core is busier than the clock on the wall allows. */
static void never_beyond_wall(void)
{
	struct client c[CORES];
	long long base[CORES], sum = 0, wall = 0;
	bool ok = true;

	set_delay(100);
	for (int i = 0; i < CORES; i++) {
		c[i] = client();
		base[i] = busy_of_core("busy_ns", i);
	}
	uint64_t start = now_ns();

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < CORES; i++)
			submit(&c[i]);
		for (int look = 0; look < 6; look++) {
			long long files = 0;

			pause_ms(10);
			sum = 0;
			for (int i = 0; i < CORES; i++) {
				long long busy = busy_of_core("busy_ns", i) - base[i];

				ok &= busy >= 0 && busy <= (long long)(now_ns() - start);
				sum += busy;
				files += busy_of_file_ms(c[i].fd);
			}
			wall = now_ns() - start;
			ok &= sum <= wall * CORES && files * 1000000 <= wall * CORES;
		}
		for (int i = 0; i < CORES; i++)
			prep(&c[i], 3000);
	}
	wall = now_ns() - start;
	sum = 0;
	for (int i = 0; i < CORES; i++)
		sum += busy_of_core("busy_ns", i) - base[i];
	ok &= sum <= wall * CORES;
	check("never-beyond-wall", "%s, %s", ok ? "yes" : "no", sum >= 1190000000 ? "all counted" : "some lost");
	printf("usage: %lld ms of three cores in %lld ms\n", sum / 1000000, wall / 1000000);
	set_delay(0);
	for (int i = 0; i < CORES; i++)
		finish(&c[i]);
}

#if OURS
static int ranges(struct client *c, const struct drm_rocket_bo_range *r, uint32_t count)
{
	struct drm_rocket_fini_bo_ranges f = {
		.handle = c->out.handle, .range_count = count, .ranges = (uintptr_t)r,
	};
	struct drm_rocket_prep_bo_ranges p = {
		.handle = c->out.handle, .range_count = count, .ranges = (uintptr_t)r,
	};
	int first = call(c->fd, DRM_IOCTL_ROCKET_FINI_BO_RANGES, &f);
	int second = call(c->fd, DRM_IOCTL_ROCKET_PREP_BO_RANGES, &p);

	return first == second ? first : -1;
}

static void ranged(void)
{
	struct client c = client();
	struct drm_rocket_bo_range r[2] = { { 0, 100 }, { 4000, 4192 } };
	struct drm_rocket_bo_range overlap[2] = { { 0, 100 }, { 99, 5 } };
	struct drm_rocket_bo_range beyond[1] = { { 8000, 193 } };
	struct drm_rocket_bo_range wrap[1] = { { 16, ~0ull } };
	struct drm_rocket_bo_range empty[1] = { { 0, 0 } };

	check("ranges", "%d %d", ranges(&c, r, 2), ranges(&c, NULL, 0));
	check("ranges-bad", "%d %d %d %d %d %d", ranges(&c, overlap, 2), ranges(&c, beyond, 1),
	      ranges(&c, wrap, 1), ranges(&c, empty, 1), ranges(&c, NULL, 1), ranges(&c, r, 1025));
	finish(&c);
}
#else
static void ranged(void)
{
}
#endif

static void mark(const char *text)
{
	char line[64];

	snprintf(line, sizeof(line), "guest: %s", text);
	write_file("/dev/kmsg", line);
}

static void of_core(int core, const char *what, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/platform/devices/%llx.npu/%s",
		 WINDOW + (uint64_t)core * CORE_STRIDE, what);
	write_file(path, text);
}

/* Until no core is up. */
static void all_suspended(void)
{
	for (int i = 0; i < CORES; i++)
		for (int tries = 0; tries < 200; tries++) {
			char path[128], text[16] = { 0 };
			int fd;

			snprintf(path, sizeof(path), "/sys/bus/platform/devices/%llx.npu/power/runtime_status",
				 WINDOW + (uint64_t)i * CORE_STRIDE);
			fd = open(path, O_RDONLY);
			if (read(fd, text, sizeof(text) - 1) < 0)
				perror(path);
			close(fd);
			if (!strncmp(text, "suspended", 9))
				break;
			pause_ms(10);
		}
}

static void set_rate(const char *hz)
{
	write_file("/sys/module/rocket/parameters/rocket_npu_clk_hz", hz);
}

/* What run compares with expected-power. */
static void power(void)
{
	struct client a = client(), b = client();
	int errors = 0;

	for (int i = 0; i < CORES; i++)
		of_core(i, "power/autosuspend_delay_ms", "50");
	all_suspended();
	mark("power begin");

	mark("power: as it is");
	errors |= then_prep(&a, submit(&a));
	all_suspended();

	mark("power: 600 MHz");
	set_rate("600000000");
	errors |= then_prep(&a, submit(&a));
	all_suspended();

	mark("power: one core leaves while another works");
	set_delay(100);
	errors |= submit(&a);
	pause_ms(50);
	set_delay(250);
	errors |= submit(&b);
	errors |= prep(&a, 2000);
	pause_ms(100);
	mark("power: and the other still works");
	errors |= prep(&b, 2000);
	all_suspended();

	mark("power: changed while a core works, up to 1 GHz and off");
	set_delay(200);
	errors |= submit(&a);
	pause_ms(50);
	set_rate("1000000000");
	pause_ms(20);
	set_rate("0");
	errors |= prep(&a, 2000);
	set_delay(0);
	all_suspended();

	mark("power: 1 GHz");
	set_rate("1000000000");
	errors |= then_prep(&a, submit(&a));
	all_suspended();

	mark("power: the rate is refused");
	write_file("/sys/module/fakepower/parameters/fail_rate", "1");
	int refused = submit(&a), told = prep_flags(&a, 2000, 1);
	check("refused-rate", "%d %d", refused, told);
	write_file("/sys/module/fakepower/parameters/fail_rate", "0");
	all_suspended();

	mark("power: and works again");
	errors |= then_prep(&a, submit(&a));
	all_suspended();
	set_rate("0");
	mark("power end");
	check("power", "%d", errors);
	finish(&a);
	finish(&b);
}

/* U9: a count that no allocator takes. */
static void too_many(void)
{
	struct client c = client();
	struct drm_rocket_job j = {
		.tasks = (uintptr_t)c.tasks, .task_count = 1u << 28, .task_struct_size = 8,
	};

	check("too-many-tasks", "%d", submit_sized(c.fd, &j, 1, 40));
	finish(&c);
}

/* U1: closed with a job in flight. */
static void close_in_flight(void)
{
	struct client c = client();

	set_delay(200);
	submit(&c);
	close(c.fd);
	pause_ms(600);
	set_delay(0);
	check("close-in-flight", "done");
}

int main(int count, char **arguments)
{
	(void)arguments;

	int mem = open("/dev/mem", O_RDWR | O_SYNC);
	pthread_t thread;

	window = mmap(NULL, WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, mem, WINDOW);
	gicd = mmap(NULL, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, mem, GICD);
	if (window == MAP_FAILED || gicd == MAP_FAILED) {
		perror("/dev/mem");
		return 1;
	}
	for (int i = 0; i < CORES; i++)
		pthread_create(&thread, NULL, answer, (void *)(intptr_t)i);

	version();
	if (count > 1) {
		spread("spread-again");
		close_in_flight();
		return 0;
	}
	refusals();
	waits();
	hang();
	spread("spread");
	if (OURS) {
		usage();
		against_the_trace();
		never_beyond_wall();
		ranged();
	}
	too_many();
	core_is(1, "unbind");
	spread("spread-without-1");
	core_is(1, "bind");
	/* Mainline's driver has lost a core by now, and jobs with it at random. */
	if (OURS) {
		spread("spread-again");
		open_over_unbind();
		power();
	}
	close_in_flight();
	check("end", "reached");
	return 0;
}
