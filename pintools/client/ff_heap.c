/* SPDX-License-Identifier: MIT */
/* Allocations: the outermost call of any module's exported malloc family.
 *
 * A hook at the function's entry notes the request; hooks before its return instructions see
 * the result. Where it leaves by a jump into another function (glibc's calloc into memset),
 * a hook makes the place where that one will return to a hook as well. Code already in the cache
 * is then thrown out, which costs milliseconds: so not for every call, and once for each place.
 *
 * Programs allocate often, and a clean call that saves vector registers costs more than malloc
 * does. on_entry and on_return run without: what they call is compiled for general registers only
 * (CMakeLists.txt), and they call nothing of DynamoRIO's or libc's. */
#include <elf.h>
#include <string.h>

#include "ff_client.h"

#include "drreg.h"
#include "hashtable.h"

struct function {
    const char *name;
    uint32_t kind;   /* enum ff_alloc_kind; 0: free */
    uint8_t size_at; /* which argument is the size */
};

static const struct function functions[] = {
    {"malloc", FF_ALLOC_MALLOC, 0},
    {"calloc", FF_ALLOC_CALLOC, 1},
    {"realloc", FF_ALLOC_REALLOC, 1},
    {"aligned_alloc", FF_ALLOC_ALIGNED, 1},
    {"memalign", FF_ALLOC_ALIGNED, 1},
    {"posix_memalign", FF_ALLOC_ALIGNED, 2},
    {"free", 0, 0},
};

/* A function of a loaded module. */
struct allocator {
    const struct function *function;
    app_pc start, end;
    struct allocator *next;
};

static hashtable_t entries; /* pc -> struct allocator * */
static hashtable_t returns; /* pc -> anything */
static struct allocator *allocators;

/* A call whose frame is gone has returned without our hook: by longjmp, or before the hook was
 * there. */
static bool is_nested(const struct ff_call *outer, uint64_t stack_pointer)
{
    return outer->is_open && outer->stack_pointer > stack_pointer;
}

static void hook_return(void *drcontext, app_pc pc)
{
    ff_lock();
    bool known = hashtable_lookup(&returns, pc) != NULL;
    if (!known)
        hashtable_add(&returns, pc, &returns);
    ff_unlock();
    if (!known && dr_fragment_exists_at(drcontext, pc))
        dr_delay_flush_region(pc, 1, 0, NULL);
}

static void on_entry(const struct allocator *allocator, uint64_t stack_pointer, uint64_t first,
                     uint64_t second, uint64_t third)
{
    const struct function *function = allocator->function;
    struct ff_thread *thread = ff_thread_here();
    if (is_nested(&thread->call, stack_pointer))
        return;
    /* The call has just put it there. */
    uint64_t caller = *(const uint64_t *)stack_pointer;
    if (function->kind == 0) {
        struct ff_free event = {first, caller};
        if (event.addr != 0)
            ff_thread_event(thread, FF_EVENT_FREE, &event, sizeof event);
        return;
    }
    struct ff_call *call = &thread->call;
    call->is_open = true;
    call->stack_pointer = stack_pointer;
    call->address_goes_to = function->size_at == 2 ? first : 0;
    call->event.addr = 0;
    call->event.size = function->size_at == 0 ? first : function->size_at == 1 ? second : third;
    call->event.caller_pc = caller;
    call->event.old_addr = 0;
    call->event.kind = function->kind;
    if (function->kind == FF_ALLOC_CALLOC)
        call->event.size *= first;
    if (function->kind == FF_ALLOC_REALLOC)
        call->event.old_addr = first;
}

/* For an allocator whose end is not known; saves everything. */
static void on_entry_unbounded(const struct allocator *allocator, uint64_t stack_pointer,
                               uint64_t first, uint64_t second, uint64_t third)
{
    on_entry(allocator, stack_pointer, first, second, third);
    const struct ff_call *call = &ff_thread_here()->call;
    if (call->is_open && call->stack_pointer == stack_pointer)
        hook_return(dr_get_current_drcontext(), (app_pc)call->event.caller_pc);
}

/* `popped`: what the return has already taken off the stack. */
static void on_return(uint64_t popped, uint64_t stack_pointer, uint64_t result)
{
    struct ff_thread *thread = ff_thread_here();
    struct ff_call *call = &thread->call;
    if (!call->is_open || stack_pointer != call->stack_pointer + popped)
        return;
    call->is_open = false;
    call->event.addr = result;
    /* posix_memalign has stored it there, or failed. */
    if (call->address_goes_to != 0)
        call->event.addr = result == 0 ? *(const uint64_t *)call->address_goes_to : 0;
    if (call->event.addr != 0 || call->event.kind == FF_ALLOC_REALLOC)
        ff_thread_event(thread, FF_EVENT_ALLOC, &call->event, sizeof call->event);
}

/* Saves all registers. */
static void on_jump_out(uint64_t stack_pointer)
{
    const struct ff_call *call = &ff_thread_here()->call;
    if (call->is_open && stack_pointer == call->stack_pointer)
        hook_return(dr_get_current_drcontext(), (app_pc)call->event.caller_pc);
}

static void insert_return(void *drcontext, instrlist_t *ilist, instr_t *where, uint32_t popped)
{
    dr_insert_clean_call_ex(drcontext, ilist, where, (void *)on_return, DR_CLEANCALL_NOSAVE_XMM, 3,
                            OPND_CREATE_INTPTR(popped), opnd_create_reg(DR_REG_XSP),
                            opnd_create_reg(DR_REG_XAX));
}

void ff_heap_insert_top(void *drcontext, instrlist_t *ilist, instr_t *first, app_pc pc)
{
    ff_lock();
    struct allocator *allocator = hashtable_lookup(&entries, pc);
    bool is_return = hashtable_lookup(&returns, pc) != NULL;
    ff_unlock();
    if (is_return)
        insert_return(drcontext, ilist, first, sizeof(void *));
    if (allocator == NULL)
        return;
    bool is_bounded = allocator->function->kind == 0 || allocator->start != allocator->end;
    dr_insert_clean_call_ex(
        drcontext, ilist, first, is_bounded ? (void *)on_entry : (void *)on_entry_unbounded,
        is_bounded ? DR_CLEANCALL_NOSAVE_XMM : 0, 5, OPND_CREATE_INTPTR(allocator),
        opnd_create_reg(DR_REG_XSP), opnd_create_reg(DR_REG_XDI), opnd_create_reg(DR_REG_XSI),
        opnd_create_reg(DR_REG_XDX));
}

static const struct allocator *allocator_at(app_pc pc)
{
    ff_lock();
    const struct allocator *each = allocators;
    while (each != NULL && !(pc >= each->start && pc < each->end))
        each = each->next;
    ff_unlock();
    return each;
}

bool ff_heap_leaves(instr_t *instr)
{
    if (!instr_is_return(instr) && !instr_is_ubr(instr) && !instr_is_cbr(instr) &&
        instr_get_opcode(instr) != OP_jmp_ind)
        return false;
    const struct allocator *in = allocator_at(instr_get_app_pc(instr));
    if (in == NULL || instr_is_return(instr) || instr_get_opcode(instr) == OP_jmp_ind)
        return in != NULL;
    app_pc target = opnd_get_pc(instr_get_target(instr));
    return target < in->start || target >= in->end;
}

void ff_heap_insert_leave(void *drcontext, instrlist_t *ilist, instr_t *where)
{
    if (instr_is_return(where)) {
        drreg_restore_app_values(drcontext, ilist, where, opnd_create_reg(DR_REG_XAX), NULL);
        insert_return(drcontext, ilist, where, 0);
    } else {
        dr_insert_clean_call(drcontext, ilist, where, (void *)on_jump_out, false, 1,
                             opnd_create_reg(DR_REG_XSP));
    }
}

/* The size of the symbol at `address`: the dynamic symbol table lies before its strings. */
static uint64_t symbol_size(const module_data_t *module, uint64_t base, app_pc address)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    uint64_t symbols = 0, strings = 0;
    if (!dr_safe_read(module->start, sizeof header, &header, NULL))
        return 0;
    for (int i = 0; i < header.e_phnum; i++) {
        if (!dr_safe_read(module->start + header.e_phoff + (size_t)i * sizeof segment,
                          sizeof segment, &segment, NULL))
            return 0;
        if (segment.p_type == PT_DYNAMIC)
            break;
    }
    if (segment.p_type != PT_DYNAMIC)
        return 0;
    for (app_pc at = (app_pc)(base + segment.p_vaddr);; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        if (!dr_safe_read(at, sizeof entry, &entry, NULL) || entry.d_tag == DT_NULL)
            break;
        /* The dynamic linker turns these into addresses, sooner or later. */
        uint64_t value = entry.d_un.d_ptr < base ? entry.d_un.d_ptr + base : entry.d_un.d_ptr;
        symbols = entry.d_tag == DT_SYMTAB ? value : symbols;
        strings = entry.d_tag == DT_STRTAB ? value : strings;
    }
    for (uint64_t at = symbols; at != 0 && at + sizeof(Elf64_Sym) <= strings;
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        if (!dr_safe_read((void *)at, sizeof symbol, &symbol, NULL))
            return 0;
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_value + base == (uint64_t)address &&
            symbol.st_size != 0)
            return symbol.st_size;
    }
    return 0;
}

void ff_heap_module(const module_data_t *module, uint64_t base)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        app_pc entry = (app_pc)dr_get_proc_address(module->handle, functions[i].name);
        if (entry == NULL || !dr_module_contains_addr(module, entry))
            continue;
        struct allocator *allocator = dr_global_alloc(sizeof *allocator);
        uint64_t size = functions[i].kind == 0 ? 0 : symbol_size(module, base, entry);
        *allocator = (struct allocator){&functions[i], entry, entry + size, allocators};
        ff_lock();
        allocators = allocator;
        hashtable_add_replace(&entries, entry, allocator);
        ff_unlock();
    }
}

void ff_heap_init(void)
{
    hashtable_init(&entries, 6, HASH_INTPTR, false);
    hashtable_init(&returns, 10, HASH_INTPTR, false);
}
