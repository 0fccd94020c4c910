/* A filter of system calls, for C and C++, that ends the process at any call that samplers do not
 * need. */
#ifndef FILTER_H
#define FILTER_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* System calls for memory, locks, signals, the clock, process and thread IDs, output and exit, but
 * not for random numbers. */
static const unsigned allowed_calls[] = {
    SYS_brk,         SYS_mmap,         SYS_munmap,         SYS_mremap,    SYS_mprotect,
    SYS_madvise,     SYS_futex,        SYS_rt_sigaction,   SYS_rt_sigprocmask, SYS_rt_sigreturn,
    SYS_sigaltstack, SYS_clock_gettime, SYS_sched_yield,   SYS_write,     SYS_writev,
    SYS_fstat,       SYS_newfstatat,   SYS_getpid,         SYS_gettid,    SYS_exit,
    SYS_exit_group,
};

enum { ALLOWED_CALLS = sizeof(allowed_calls) / sizeof(allowed_calls[0]) };

static inline void add_to_filter(struct sock_filter * program, size_t * n, unsigned short code,
                                 unsigned value, unsigned char skipped_if_not) {
    struct sock_filter * to = &program[(*n)++];
    to->code = code;
    to->jt   = 0;
    to->jf   = skipped_if_not;
    to->k    = value;
}

static inline void end_at_other_system_calls(void) {
    struct sock_filter program[2 * ALLOWED_CALLS + 2];
    size_t             n = 0;
    add_to_filter(program, &n, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0);
    for (size_t i = 0; i < ALLOWED_CALLS; i++) {
        add_to_filter(program, &n, BPF_JMP | BPF_JEQ | BPF_K, allowed_calls[i], 1);
        add_to_filter(program, &n, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0);
    }
    add_to_filter(program, &n, BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0);
    struct sock_fprog all;
    all.len    = (unsigned short) n;
    all.filter = program;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) {
        fprintf(stderr, "there are no filters of system calls here\n");
        exit(1);
    }
}

#endif
