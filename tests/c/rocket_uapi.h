/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The interface of the mainline rocket driver, written from its numbers (kernel-and-uapi A.2). */
#ifndef ROCKET_UAPI_H
#define ROCKET_UAPI_H

#include <stdint.h>
#include <sys/ioctl.h>

struct rocket_create_bo {
    uint32_t size;        /* in */
    uint32_t handle;      /* out */
    uint64_t dma_address; /* out: what the NPU calls it */
    uint64_t offset;      /* out: for mmap */
};

struct rocket_prep_bo {
    uint32_t handle;
    uint32_t reserved;
    int64_t timeout_ns; /* absolute CLOCK_MONOTONIC */
};

struct rocket_fini_bo {
    uint32_t handle;
    uint32_t reserved;
};

struct rocket_task {
    uint32_t regcmd;
    uint32_t regcmd_count; /* 64-bit words */
};

/* The grown layout; older drivers read its first 40 bytes. */
struct rocket_job {
    uint64_t tasks;
    uint64_t in_bo_handles;
    uint64_t out_bo_handles;
    uint32_t task_count;
    uint32_t task_struct_size;
    uint32_t in_bo_handle_count;
    uint32_t out_bo_handle_count;
    uint32_t flags;
    uint32_t reserved;
};

struct rocket_submit {
    uint64_t jobs;
    uint32_t job_count;
    uint32_t job_struct_size;
    uint64_t reserved;
};

struct rocket_bo_range {
    uint64_t offset;
    uint64_t size;
};

struct rocket_prep_bo_ranges {
    uint32_t handle;
    uint32_t range_count;
    uint64_t ranges;
    int64_t timeout_ns;
    uint64_t reserved;
};

struct rocket_gem_close {
    uint32_t handle;
    uint32_t pad;
};

#define ROCKET_CREATE_BO _IOWR('d', 0x40, struct rocket_create_bo)
#define ROCKET_SUBMIT _IOW('d', 0x41, struct rocket_submit)
#define ROCKET_PREP_BO _IOW('d', 0x42, struct rocket_prep_bo)
#define ROCKET_FINI_BO _IOW('d', 0x43, struct rocket_fini_bo)
#define ROCKET_PREP_BO_RANGES _IOW('d', 0x44, struct rocket_prep_bo_ranges)
#define ROCKET_GEM_CLOSE _IOW('d', 0x09, struct rocket_gem_close)

_Static_assert(ROCKET_CREATE_BO == 0xc0186440, "CREATE_BO");
_Static_assert(ROCKET_SUBMIT == 0x40186441, "SUBMIT");
_Static_assert(ROCKET_PREP_BO == 0x40106442, "PREP_BO");
_Static_assert(ROCKET_FINI_BO == 0x40086443, "FINI_BO");
_Static_assert(ROCKET_PREP_BO_RANGES == 0x40206444, "PREP_BO_RANGES");
_Static_assert(ROCKET_GEM_CLOSE == 0x40086409, "GEM_CLOSE");
_Static_assert(sizeof(struct rocket_job) == 48, "job");
_Static_assert(sizeof(struct rocket_task) == 8, "task");

#endif
