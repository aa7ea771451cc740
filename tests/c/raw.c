/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Opens the node by a system call instruction of its own. */
#include <fcntl.h>
#include <stdio.h>

static long open_raw(const char *path)
{
    long result;
#if defined(__x86_64__)
    register long flags __asm__("rdx") = O_RDWR, mode __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(257l), "D"((long)AT_FDCWD), "S"(path), "r"(flags), "r"(mode)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 56, dir __asm__("x0") = AT_FDCWD;
    register const char *at __asm__("x1") = path;
    register long flags __asm__("x2") = O_RDWR, mode __asm__("x3") = 0;
    __asm__ volatile("svc #0" : "+r"(dir) : "r"(number), "r"(at), "r"(flags), "r"(mode) : "memory");
    result = dir;
#endif
    return result;
}

int main(void)
{
    printf("%ld\n", open_raw("/dev/accel/accel0"));
    return 0;
}
