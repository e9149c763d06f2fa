/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What threads send and receive over TCP and UDP, so that the recordings of several hosts can be
 * joined. A TCP exchange has the connection's own sequence number, which is the same at both ends
 * whenever either recording began. A datagram has a hash of its first bytes. */
#ifndef FF_EXCHANGE_H
#define FF_EXCHANGE_H

#include "ff_records.h"

#define FF_AF_INET 2
#define FF_AF_INET6 10
#define FF_MSG_PEEK 2
#define FF_HEAD 32 /* bytes of a datagram that are hashed */

struct in6_addr {
    __u8 bytes[16];
};
struct sock_common {
    __u32 skc_daddr, skc_rcv_saddr;
    __u16 skc_dport, skc_num, skc_family;
    struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} KERNEL;
struct sock {
    struct sock_common __sk_common;
    __u16 sk_protocol;
} KERNEL;
struct socket {
    struct sock *sk;
} KERNEL;
struct tcp_sock {
    __u32 write_seq, copied_seq;
} KERNEL;
struct msghdr {
    void *msg_name;
} KERNEL;

/* When the thread (by the kernel's id) began to send. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} sending SECTION(".maps");

#define FIELD(structure, field)                                                                    \
    ((const void *)(structure) + __builtin_preserve_field_info((structure)->field, FIELD_OFFSET))

INLINE __u16 swapped(__u16 port) { return port >> 8 | port << 8; }

/* The address of a socket that is not connected comes with each message. */
INLINE void name_remote(struct ff_event_exchange *it, const void *name)
{
    struct {
        __u16 family, port;
        __u32 address;
        __u8 address6[16];
    } given = {};
    if (!name || bpf_probe_read_kernel(&given, 8, name))
        return;
    it->remote_port = swapped(given.port);
    if (given.family == FF_AF_INET)
        __builtin_memcpy(it->remote, &given.address, 4);
    else if (given.family == FF_AF_INET6)
        bpf_probe_read_kernel(it->remote, 16, name + 8);
    else
        it->remote_port = 0;
}

/* Where the call's first bytes are in the caller's memory; 0: not known. */
INLINE __u64 head_of(struct pt_regs *registers, __u64 *bytes)
{
    struct {
        __u64 base, length;
    } first = {};
    __u64 vector = registers->si;
    switch (registers->orig_ax) {
    case 0:  /* read */
    case 1:  /* write */
    case 44: /* sendto */
    case 45: /* recvfrom */
        return registers->si;
    case 46: /* sendmsg */
    case 47: /* recvmsg: struct msghdr of the caller's */
        if (bpf_probe_read_user(&vector, sizeof vector, (const void *)registers->si + 16))
            return 0;
        break;
    case 19: /* readv */
    case 20: /* writev */
        break;
    default:
        return 0;
    }
    if (bpf_probe_read_user(&first, sizeof first, (const void *)vector))
        return 0;
    if (first.length < *bytes)
        *bytes = first.length;
    return first.base;
}

INLINE __u64 fingerprint(struct task_struct *task, __u64 bytes)
{
    __u64 words[FF_HEAD / 8] = {}, hash = bytes;
    __u64 head = head_of(bpf_task_pt_regs(task), &bytes);
    if (!head)
        return 0;
    if (bytes > FF_HEAD)
        bytes = FF_HEAD;
    asm volatile("" : "+r"(bytes));
    if (bytes > FF_HEAD || bpf_probe_read_user(words, bytes, (const void *)head))
        return 0;
    for (int i = 0; i < FF_HEAD / 8; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

INLINE void record_exchange(__u8 kind, struct socket *socket, struct msghdr *message, __s64 bytes)
{
    struct task_struct *current = bpf_get_current_task_btf();
    __u32 thread = bpf_get_current_pid_tgid();
    __u64 *found = kind == FF_EVENT_SENT ? bpf_map_lookup_elem(&sending, &thread) : 0;
    __u64 began = found ? *found : 0;
    if (found)
        bpf_map_delete_elem(&sending, &thread);
    struct sock *sock = socket->sk;
    if (bytes <= 0 || !sock || current->flags & PF_KTHREAD || !concerns(current))
        return;
    struct sock_common *common = &sock->__sk_common;
    __u16 family = common->skc_family, protocol = sock->sk_protocol;
    if ((family != FF_AF_INET && family != FF_AF_INET6) ||
        (protocol != FF_TCP && protocol != FF_UDP))
        return;
    struct {
        struct ff_event event;
        struct ff_event_exchange it;
    } *record = reserve(sizeof *record, kind, 0, id_of(current), 0);
    if (!record)
        return;
    struct ff_event_exchange *it = &record->it;
    __builtin_memset(it, 0, sizeof *it);
    it->socket = (__u64)sock;
    it->began = began;
    it->bytes = bytes;
    it->protocol = protocol;
    it->is_v6 = family == FF_AF_INET6;
    it->local_port = common->skc_num;
    it->remote_port = swapped(common->skc_dport);
    if (family == FF_AF_INET) {
        bpf_probe_read_kernel(it->local, 4, FIELD(common, skc_rcv_saddr));
        bpf_probe_read_kernel(it->remote, 4, FIELD(common, skc_daddr));
    } else if (__builtin_preserve_field_info(common->skc_v6_daddr, FIELD_EXISTS)) {
        bpf_probe_read_kernel(it->local, 16, FIELD(common, skc_v6_rcv_saddr));
        bpf_probe_read_kernel(it->remote, 16, FIELD(common, skc_v6_daddr));
    }
    if (protocol == FF_TCP) {
        struct tcp_sock *tcp = (void *)sock;
        __u32 sequence = 0;
        bpf_probe_read_kernel(&sequence, sizeof sequence,
                              kind == FF_EVENT_SENT ? FIELD(tcp, write_seq)
                                                    : FIELD(tcp, copied_seq));
        it->position = sequence;
    } else {
        it->position = fingerprint(current, bytes);
        name_remote(it, message->msg_name);
    }
    SUBMIT(record);
}

INLINE int begin_sending(void)
{
    __u32 thread = bpf_get_current_pid_tgid();
    __u64 now = bpf_ktime_get_ns();
    if (concerns(bpf_get_current_task_btf()))
        bpf_map_update_elem(&sending, &thread, &now, BPF_ANY);
    return 0;
}

#define EXCHANGES(family)                                                                          \
    SECTION("fentry/" #family "_sendmsg")                                                          \
    int ff_##family##_sends(__u64 *context) { return begin_sending(); }                            \
    SECTION("fexit/" #family "_sendmsg")                                                           \
    int ff_##family##_sent(__u64 *context)                                                         \
    {                                                                                              \
        record_exchange(FF_EVENT_SENT, (void *)context[0], (void *)context[1], (int)context[3]);   \
        return 0;                                                                                  \
    }                                                                                              \
    SECTION("fexit/" #family "_recvmsg")                                                           \
    int ff_##family##_received(__u64 *context)                                                     \
    {                                                                                              \
        if (!(context[3] & FF_MSG_PEEK))                                                           \
            record_exchange(FF_EVENT_RECEIVED, (void *)context[0], (void *)context[1],             \
                            (int)context[4]);                                                      \
        return 0;                                                                                  \
    }

EXCHANGES(inet)
EXCHANGES(inet6)

#endif
