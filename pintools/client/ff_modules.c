/* SPDX-License-Identifier: MIT */
/* Modules as the engine needs them: segments, build id, and the address of ELF vaddr 0. */
#include <elf.h>
#include <string.h>

#include "ff_client.h"
#include "ff_sys.h"

#define BUILD_ID_MOST 64
#define HEADERS_MOST 32

struct module {
    app_pc start, end;
    uint32_t number;
};

static struct module *modules;
static uint32_t module_count, module_capacity;
static uint32_t last_number;

struct elf_facts {
    uint64_t base;
    uint8_t build_id[BUILD_ID_MOST];
    uint32_t build_id_bytes;
};

static void read_build_id(struct elf_facts *facts, app_pc notes, size_t bytes)
{
    uint8_t text[2048];
    size_t got = 0;
    dr_safe_read(notes, bytes < sizeof text ? bytes : sizeof text, text, &got);
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= got;) {
        Elf64_Nhdr note;
        memcpy(&note, text + at, sizeof note);
        size_t name = at + sizeof note;
        size_t content = name + ((note.n_namesz + 3u) & ~3u);
        size_t next = content + ((note.n_descsz + 3u) & ~3u);
        if (next > got || next <= at)
            return;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(text + name, "GNU", 4) == 0 && note.n_descsz <= BUILD_ID_MOST) {
            memcpy(facts->build_id, text + content, note.n_descsz);
            facts->build_id_bytes = note.n_descsz;
            return;
        }
        at = next;
    }
}

static struct elf_facts read_elf(const module_data_t *info)
{
    struct elf_facts facts = {.base = (uint64_t)info->start};
    Elf64_Ehdr header;
    Elf64_Phdr segments[HEADERS_MOST];
    size_t got = 0;
    if (!dr_safe_read(info->start, sizeof header, &header, NULL) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return facts;
    uint32_t count = header.e_phnum < HEADERS_MOST ? header.e_phnum : HEADERS_MOST;
    dr_safe_read(info->start + header.e_phoff, count * sizeof *segments, segments, &got);
    count = (uint32_t)(got / sizeof *segments);
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr < lowest)
            lowest = segments[i].p_vaddr;
    }
    if (lowest != UINT64_MAX)
        facts.base -= lowest & ~UINT64_C(4095);
    for (uint32_t i = 0; i < count && facts.build_id_bytes == 0; i++) {
        if (segments[i].p_type == PT_NOTE)
            read_build_id(&facts, (app_pc)facts.base + segments[i].p_vaddr, segments[i].p_filesz);
    }
    return facts;
}

static uint32_t protection(uint prot)
{
    return (prot & DR_MEMPROT_READ ? 1u : 0u) | (prot & DR_MEMPROT_WRITE ? 2u : 0u) |
           (prot & DR_MEMPROT_EXEC ? 4u : 0u);
}

static void add(app_pc start, app_pc end, uint32_t number)
{
    if (module_count == module_capacity) {
        uint32_t capacity = module_capacity == 0 ? 64 : module_capacity * 2;
        struct module *more = dr_global_alloc(capacity * sizeof *more);
        if (modules != NULL) {
            memcpy(more, modules, module_count * sizeof *more);
            dr_global_free(modules, module_capacity * sizeof *modules);
        }
        modules = more;
        module_capacity = capacity;
    }
    modules[module_count++] = (struct module){start, end, number};
}

/* DynamoRIO's library and this one are no part of the program. */
static bool is_ours(const module_data_t *info)
{
    return dr_module_contains_addr(info, (app_pc)(ptr_uint_t)ff_modules_init) ||
           dr_module_contains_addr(info, (app_pc)(ptr_uint_t)dr_get_main_module);
}

static void on_load(void *drcontext, const module_data_t *info, bool loaded)
{
    (void)drcontext;
    (void)loaded;
    if (is_ours(info))
        return;
    struct elf_facts facts = read_elf(info);
    const char *path = info->full_path != NULL ? info->full_path : "";
    struct ff_segment segments[HEADERS_MOST];
    uint32_t count = 0;
    for (uint i = 0; i < info->num_segments && count < HEADERS_MOST; i++) {
        segments[count++] = (struct ff_segment){
            .start = (uint64_t)info->segments[i].start,
            .end = (uint64_t)info->segments[i].end,
            .file_offset = info->segments[i].offset,
            .prot = protection(info->segments[i].prot),
        };
    }
    ff_lock();
    struct ff_module_load load = {
        .ts = ff_now(),
        .module = ++last_number,
        .segment_count = count,
        .base = facts.base,
        .start = (uint64_t)info->start,
        .end = (uint64_t)info->end,
        .build_id_bytes = facts.build_id_bytes,
        .path_bytes = (uint32_t)strlen(path),
    };
    add(info->start, info->end, load.module);
    struct ff_part parts[] = {{&load, sizeof load},
                              {segments, count * (uint32_t)sizeof *segments},
                              {facts.build_id, facts.build_id_bytes},
                              {path, load.path_bytes}};
    ff_meta_write(FF_META_MODULE_LOAD, parts, 4);
    ff_ranges_module(path, facts.base);
    ff_unlock();
    ff_heap_module(info, facts.base);
}

static void on_unload(void *drcontext, const module_data_t *info)
{
    (void)drcontext;
    ff_lock();
    for (uint32_t i = 0; i < module_count; i++) {
        if (modules[i].start != info->start)
            continue;
        struct ff_module_unload unload = {.ts = ff_now(), .module = modules[i].number};
        modules[i] = modules[--module_count];
        struct ff_part part = {&unload, sizeof unload};
        ff_meta_write(FF_META_MODULE_UNLOAD, &part, 1);
        break;
    }
    ff_unlock();
}

uint32_t ff_module_at(app_pc pc)
{
    for (uint32_t i = 0; i < module_count; i++) {
        if (pc >= modules[i].start && pc < modules[i].end)
            return modules[i].number;
    }
    return 0;
}

void ff_modules_init(void)
{
    drmgr_register_module_load_event(on_load);
    drmgr_register_module_unload_event(on_unload);
}
