/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What our BPF programs need of the kernel's interface: helpers by number, map and section markers.
 * Helper numbers and these layouts are stable ABI (linux/bpf.h), so no vmlinux.h and no libbpf
 * headers are needed; structures of the kernel's inside are declared where they are used, with
 * preserve_access_index. */
#ifndef FF_BPF_H
#define FF_BPF_H

#include <linux/bpf.h>
#include <linux/types.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* BTF map definitions carry numbers as array types. */
#define MAP_NUMBER(name, value) int(*name)[value]
#define MAP_TYPE(name, type) type *name

static void *(*const bpf_map_lookup_elem)(void *map,
                                          const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
                                         __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*const bpf_get_current_pid_tgid)(void) = (void *)BPF_FUNC_get_current_pid_tgid;
static long (*const bpf_get_current_comm)(void *to, __u32 size) = (void *)BPF_FUNC_get_current_comm;
static __u32 (*const bpf_get_smp_processor_id)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*const bpf_probe_read_user)(void *to, __u32 size,
                                         const void *from) = (void *)BPF_FUNC_probe_read_user;
static long (*const bpf_probe_read_kernel)(void *to, __u32 size,
                                           const void *from) = (void *)BPF_FUNC_probe_read_kernel;
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size,
                                          __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*const bpf_ringbuf_submit)(void *record,
                                        __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static long (*const bpf_ringbuf_output)(void *ring, void *data, __u64 size,
                                        __u64 flags) = (void *)BPF_FUNC_ringbuf_output;
static void *(*const bpf_get_current_task_btf)(void) = (void *)BPF_FUNC_get_current_task_btf;
static long (*const bpf_get_task_stack)(void *task, void *to, __u32 size,
                                        __u64 flags) = (void *)BPF_FUNC_get_task_stack;
static void *(*const bpf_task_pt_regs)(void *task) = (void *)BPF_FUNC_task_pt_regs;

#endif
