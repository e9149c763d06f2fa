/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What threads send and receive over TCP and UDP, so that the recordings of several hosts can be
 * joined. A TCP exchange has the connection's own sequence number, which is the same at both ends
 * whenever either recording began. A datagram has a hash of its first bytes.
 *
 * The calls are seen where they begin and return: a kernel that is locked down lets nobody attach
 * to its functions, and the tracepoints of sockets came late (Linux 6.3). */
#ifndef FF_EXCHANGE_H
#define FF_EXCHANGE_H

#include "ff_records.h"

#define FF_AF_INET 2
#define FF_AF_INET6 10
#define FF_MSG_PEEK 2
#define FF_MODE 0170000
#define FF_SOCKET 0140000
#define FF_HEAD 32 /* bytes of a datagram that are hashed */

enum {
    READ = 0,
    WRITE = 1,
    READV = 19,
    WRITEV = 20,
    SENDFILE = 40,
    SENDTO = 44,
    RECVFROM = 45,
    SENDMSG = 46,
    RECVMSG = 47
};

struct file;
struct fdtable {
    unsigned int max_fds;
    struct file **fd;
} KERNEL;
struct files_struct {
    struct fdtable *fdt;
} KERNEL;
struct file_lock_context;
struct inode {
    __u16 i_mode;
    struct file_lock_context *i_flctx;
} KERNEL;
struct file {
    struct inode *f_inode;
    void *private_data;
} KERNEL;
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

/* When the thread (by the kernel's id) began to send. What threads leave there that are killed
 * meanwhile makes room. */
struct {
    MAP_NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
    MAP_NUMBER(max_entries, 16384);
    MAP_TYPE(key, __u32);
    MAP_TYPE(value, __u64);
} sending SECTION(".maps");

/* Reads a field of a structure of the kernel's; 0: it is there. */
#define FETCH(to, structure, field)                                                                \
    bpf_probe_read_kernel(to, sizeof *(to),                                                        \
                          (const void *)(structure) +                                              \
                              __builtin_preserve_field_info((structure)->field, FIELD_OFFSET))

INLINE __u16 swapped(__u16 port) { return port >> 8 | port << 8; }

INLINE int sends(__u64 call)
{
    return call == WRITE || call == WRITEV || call == SENDFILE || call == SENDTO || call == SENDMSG;
}

INLINE int receives(__u64 call, struct pt_regs *registers)
{
    switch (call) {
    case READ:
    case READV:
        return 1;
    case RECVFROM:
        return !(registers->r10 & FF_MSG_PEEK);
    case RECVMSG:
        return !(registers->dx & FF_MSG_PEEK);
    }
    return 0;
}

/* The socket of one of the current thread's descriptors; 0: it is none. */
INLINE struct sock *socket_at(struct task_struct *current, __u32 descriptor)
{
    struct files_struct *files = current->files;
    struct fdtable *table = files ? files->fdt : 0;
    struct file *file = 0;
    struct inode *inode = 0;
    struct socket *socket = 0;
    struct sock *sock = 0;
    __u16 mode = 0;
    if (!table || descriptor >= table->max_fds ||
        bpf_probe_read_kernel(&file, sizeof file, (void *)table->fd + descriptor * sizeof file) ||
        !file || FETCH(&inode, file, f_inode) || FETCH(&mode, inode, i_mode) ||
        (mode & FF_MODE) != FF_SOCKET || FETCH(&socket, file, private_data) || !socket)
        return 0;
    FETCH(&sock, socket, sk);
    return sock;
}

/* The address of a socket that is not connected is in the caller's memory, with each message. */
INLINE void name_remote(struct ff_event_exchange *it, const void *name)
{
    struct {
        __u16 family, port;
        __u32 address;
    } given = {};
    if (!name || bpf_probe_read_user(&given, sizeof given, name))
        return;
    if (given.family == FF_AF_INET)
        __builtin_memcpy(it->remote, &given.address, 4);
    else if (given.family != FF_AF_INET6 || bpf_probe_read_user(it->remote, 16, name + 8))
        return;
    it->remote_port = swapped(given.port);
}

/* The hash of a datagram's first bytes, as far as they lie together; 0: they can't be read. */
INLINE __u64 fingerprint(const void *head, __u64 bytes, __u64 most)
{
    __u64 words[FF_HEAD / 8] = {}, hash = bytes;
    if (bytes > most)
        bytes = most;
    if (bytes > FF_HEAD)
        bytes = FF_HEAD;
    asm volatile("" : "+r"(bytes));
    if (bytes > FF_HEAD || bpf_probe_read_user(words, bytes, head))
        return 0;
    for (int i = 0; i < FF_HEAD / 8; i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
    }
    return hash | 1;
}

/* Names the datagram of a call and who is at its other end. */
INLINE void describe_datagram(struct ff_event_exchange *it, __u64 call, struct pt_regs *registers)
{
    struct {
        const void *name;
        __u64 name_bytes;
        const void *vector;
    } message = {};
    struct {
        const void *base;
        __u64 length;
    } first = {(const void *)registers->si, it->bytes};
    if (call == SENDTO || call == RECVFROM)
        message.name = (const void *)registers->r8;
    if (call == READV || call == WRITEV)
        message.vector = (const void *)registers->si;
    if ((call == SENDMSG || call == RECVMSG) &&
        bpf_probe_read_user(&message, sizeof message, (const void *)registers->si))
        return;
    name_remote(it, message.name);
    if (message.vector && bpf_probe_read_user(&first, sizeof first, message.vector))
        return;
    it->position = fingerprint(first.base, it->bytes, first.length);
}

INLINE void record_exchange(struct task_struct *current, __u8 kind, struct pt_regs *registers,
                            __u64 bytes, __u64 began)
{
    struct sock *sock = socket_at(current, registers->di);
    struct sock_common *common = &sock->__sk_common;
    __u16 family = 0, protocol = 0, port = 0;
    if (!sock || FETCH(&family, common, skc_family) || FETCH(&protocol, sock, sk_protocol) ||
        (family != FF_AF_INET && family != FF_AF_INET6) ||
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
    FETCH(&it->local_port, common, skc_num);
    FETCH(&port, common, skc_dport);
    it->remote_port = swapped(port);
    if (!it->is_v6) {
        FETCH((__u32 *)it->local, common, skc_rcv_saddr);
        FETCH((__u32 *)it->remote, common, skc_daddr);
    } else if (__builtin_preserve_field_info(common->skc_v6_daddr, FIELD_EXISTS)) {
        FETCH(&it->local, common, skc_v6_rcv_saddr);
        FETCH(&it->remote, common, skc_v6_daddr);
    }
    if (protocol == FF_UDP)
        describe_datagram(it, registers->orig_ax, registers);
    else {
        struct tcp_sock *tcp = (void *)sock;
        __u32 sequence = 0;
        if (kind == FF_EVENT_SENT)
            FETCH(&sequence, tcp, write_seq);
        else
            FETCH(&sequence, tcp, copied_seq);
        it->position = sequence;
    }
    SUBMIT(record);
}

SECTION("tp_btf/sys_enter")
int ff_send_begins(__u64 *context)
{
    struct task_struct *current = bpf_get_current_task_btf();
    if (!sends(context[1]) || !concerns(current))
        return 0;
    __u32 thread = current->pid;
    __u64 now = bpf_ktime_get_ns();
    bpf_map_update_elem(&sending, &thread, &now, BPF_ANY);
    return 0;
}

SECTION("tp_btf/sys_exit")
int ff_exchange_ends(__u64 *context)
{
    struct pt_regs *registers = (void *)context[0];
    struct task_struct *current = bpf_get_current_task_btf();
    __s64 bytes = context[1];
    __u64 call = registers->orig_ax;
    if (sends(call)) {
        __u32 thread = current->pid;
        __u64 *found = bpf_map_lookup_elem(&sending, &thread);
        __u64 began = found ? *found : 0;
        if (!found)
            return 0; /* it does not concern us, or the recording began meanwhile */
        bpf_map_delete_elem(&sending, &thread);
        if (bytes > 0)
            record_exchange(current, FF_EVENT_SENT, registers, bytes, began);
    } else if (bytes > 0 && receives(call, registers) && concerns(current))
        record_exchange(current, FF_EVENT_RECEIVED, registers, bytes, 0);
    return 0;
}

#endif
