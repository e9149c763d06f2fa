/* SPDX-License-Identifier: MIT */
/* System calls, signals, faults, fork and exec, as events in the thread's flow. */
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

#include "ff_client.h"
#include "ff_sys.h"

struct clone_request {
    bool makes_thread; /* shares memory: a thread, or a vfork child */
    uint64_t stack_pointer;
};

static struct clone_request clone_request(void *drcontext, int number)
{
    struct clone_request request = {false, 0};
    uint64_t flags = 0;
    if (number == SYS_vfork) {
        flags = CLONE_VM;
    } else if (number == SYS_clone) {
        flags = dr_syscall_get_param(drcontext, 0);
        request.stack_pointer = dr_syscall_get_param(drcontext, 1);
    } else if (number == SYS_clone3) {
        uint64_t args[7] = {
            0}; /* flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size */
        dr_safe_read((void *)dr_syscall_get_param(drcontext, 0), sizeof args, args, NULL);
        flags = args[0];
        request.stack_pointer = args[5] == 0 ? 0 : args[5] + args[6];
    }
    request.makes_thread = (flags & CLONE_VM) != 0;
    return request;
}

static bool is_fork_like(int number)
{
    return number == SYS_fork || number == SYS_vfork || number == SYS_clone || number == SYS_clone3;
}

static void write_name(struct ff_thread *thread, const char *application_text)
{
    char name[16] = {0};
    size_t got = 0;
    dr_safe_read(application_text, sizeof name - 1, name, &got);
    ff_thread_event(thread, FF_EVENT_THREAD_NAME, name, (uint32_t)strlen(name));
}

static void write_exec(struct ff_thread *thread, const char *application_path)
{
    char path[4096];
    struct ff_exec exec = {ff_event_now()};
    size_t got = 0;
    dr_safe_read(application_path, sizeof path - 1, path, &got);
    path[got] = '\0';
    ff_thread_event2(thread, FF_EVENT_EXEC, (struct ff_part){&exec, sizeof exec},
                     (struct ff_part){path, (uint32_t)strlen(path)});
}

static bool on_any_syscall(void *drcontext, int number)
{
    (void)drcontext;
    (void)number;
    return true;
}

static bool on_syscall_enter(void *drcontext, int number)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    struct ff_syscall_enter enter;
    uint32_t bytes = offsetof(struct ff_syscall_enter, regs);
    *thread->before_call = 0;
    /* A sigreturn does not return. */
    thread->open_call = number == SYS_rt_sigreturn ? -1 : number;
    enter.ts = ff_event_now();
    enter.number = (uint32_t)number;
    enter.regs_valid = 0;
    for (int i = 0; i < 6; i++)
        enter.args[i] = dr_syscall_get_param(drcontext, i);
    if (ff_pool_level() == FF_LEVEL_VALUES) {
        dr_mcontext_t state = {.size = sizeof state, .flags = DR_MC_INTEGER | DR_MC_CONTROL};
        if (dr_get_mcontext(drcontext, &state)) {
            enter.regs_valid = ff_registers(enter.regs, &state);
            bytes = sizeof enter;
        }
    }
    ff_thread_event(thread, FF_EVENT_SYSCALL_ENTER, &enter, bytes);

    if (number == SYS_exit || number == SYS_exit_group) {
        thread->exit_status = (int64_t)(int)enter.args[0];
    } else if (number == SYS_prctl && enter.args[0] == PR_SET_NAME) {
        write_name(thread, (const char *)enter.args[1]);
    } else if (number == SYS_execve || number == SYS_execveat) {
        write_exec(thread, (const char *)enter.args[number == SYS_execve ? 0 : 1]);
        ff_exec_enter((const char *)enter.args[number == SYS_execve ? 0 : 1],
                      number == SYS_execveat);
        /* The thread does not come back to hand these over. */
        ff_meta_flush();
        ff_thread_flush(thread);
    } else if (number == SYS_close_range) {
        ff_descriptors_enter(drcontext, thread);
    } else if (is_fork_like(number)) {
        struct clone_request request = clone_request(drcontext, number);
        if (request.makes_thread) {
            dr_mcontext_t state = {.size = sizeof state, .flags = DR_MC_CONTROL};
            if (request.stack_pointer == 0 && dr_get_mcontext(drcontext, &state))
                request.stack_pointer = state.xsp;
            ff_thread_expect(request.stack_pointer, thread->tid);
        }
        /* What our lock guards is whole in a fork's copy: DynamoRIO first brings all threads to
         * places outside of clients' code. The lock must not be held meanwhile, as they may wait
         * for it. */
    }
    return true;
}

static void on_syscall_exit(void *drcontext, int number)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    struct ff_syscall_exit leave = {
        .ts = ff_event_now(),
        .result = (int64_t)dr_syscall_get_result(drcontext),
        .number = (uint32_t)number,
    };
    thread->open_call = -1;
    if (number == SYS_close_range)
        ff_descriptors_exit(drcontext, thread);
    ff_thread_event(thread, FF_EVENT_SYSCALL_EXIT, &leave, sizeof leave);
    if (is_fork_like(number) && leave.result > 0 &&
        !clone_request(drcontext, number).makes_thread) {
        struct ff_fork fork = {.ts = leave.ts, .child_pid = (uint32_t)leave.result};
        ff_thread_event(thread, FF_EVENT_FORK, &fork, sizeof fork);
    }
}

static void on_fork_child(void *drcontext)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    if (ff_follow_children)
        ff_pool_fork();
    else
        ff_pool_leave();
    ff_introduce();
    ff_meta_fork();
    ff_thread_fork(thread);
}

static bool is_synchronous(int signal)
{
    return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
           signal == SIGTRAP;
}

static dr_signal_action_t on_signal(void *drcontext, dr_siginfo_t *info)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    if (thread != NULL && is_synchronous(info->sig) && info->raw_mcontext_valid) {
        struct ff_fault fault = {.ts = ff_event_now(), .pc = (uint64_t)info->mcontext->pc};
        ff_thread_event(thread, FF_EVENT_FAULT, &fault, sizeof fault);
    }
    return DR_SIGNAL_DELIVER;
}

static void on_transfer(void *drcontext, const dr_kernel_xfer_info_t *info)
{
    struct ff_thread *thread = ff_thread_of(drcontext);
    uint64_t from = info->source_mcontext == NULL ? 0 : (uint64_t)info->source_mcontext->pc;
    if (thread == NULL)
        return;
    ff_thread_goes_on(thread, (app_pc)from);
    if (info->type == DR_XFER_SIGNAL_DELIVERY) {
        struct ff_signal signal = {
            .ts = ff_event_now(),
            .signo = (uint32_t)info->sig,
            .interrupted_pc = from,
            .handler_pc = (uint64_t)info->target_pc,
            .handler_sp = info->target_xsp,
        };
        ff_thread_event(thread, FF_EVENT_SIGNAL, &signal, sizeof signal);
        return;
    }
    struct ff_transfer transfer = {
        .ts = ff_event_now(),
        .from_pc = from,
        .to_pc = (uint64_t)info->target_pc,
        .to_sp = info->target_xsp,
        .cause = info->type == DR_XFER_SIGNAL_RETURN ? FF_TRANSFER_SIGRETURN : FF_TRANSFER_OTHER,
    };
    ff_thread_event(thread, FF_EVENT_TRANSFER, &transfer, sizeof transfer);
}

void ff_events_init(void)
{
    dr_register_filter_syscall_event(on_any_syscall);
    drmgr_register_pre_syscall_event(on_syscall_enter);
    drmgr_register_post_syscall_event(on_syscall_exit);
    drmgr_register_signal_event(on_signal);
    drmgr_register_kernel_xfer_event(on_transfer);
    dr_register_fork_init_event(on_fork_child);
}
