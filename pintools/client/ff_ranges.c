/* SPDX-License-Identifier: MIT */
/* --values-in: only code in these module-relative ranges gets slots. A file of lines
 *     module-basename+0xSTART-0xEND      (or +0xOFFSET for one address)
 * with offsets from ELF vaddr 0; empty lines and lines beginning with # are skipped. */
#include <string.h>

#include "ff_client.h"

struct range {
    char module[128];
    uint64_t start, end;
};
struct active {
    app_pc start, end;
};

static struct range *ranges;
static uint32_t range_count;
static struct active *active;
static uint32_t active_count, active_capacity;
static bool is_limited;

static const char *parse_hex(const char *at, const char *end, uint64_t *value)
{
    if (end - at > 2 && at[0] == '0' && (at[1] == 'x' || at[1] == 'X'))
        at += 2;
    const char *from = at;
    for (*value = 0; at < end; at++) {
        int digit = *at >= '0' && *at <= '9'   ? *at - '0'
                    : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10
                    : *at >= 'A' && *at <= 'F' ? *at - 'A' + 10
                                               : -1;
        if (digit < 0)
            break;
        *value = *value * 16 + (uint64_t)digit;
    }
    return at == from ? NULL : at;
}

static bool parse_line(const char *line, const char *end, struct range *range)
{
    const char *plus = end;
    while (plus > line && *plus != '+')
        plus--;
    size_t name = (size_t)(plus - line);
    if (name == 0 || name >= sizeof range->module)
        return false;
    memcpy(range->module, line, name);
    range->module[name] = '\0';
    const char *at = parse_hex(plus + 1, end, &range->start);
    if (at == NULL)
        return false;
    range->end = range->start + 1;
    if (at < end && *at == '-')
        at = parse_hex(at + 1, end, &range->end);
    return at == end && range->end > range->start;
}

bool ff_ranges_read(const char *path)
{
    uint64_t size;
    file_t file = dr_open_file(path, DR_FILE_READ);
    if (file == INVALID_FILE)
        return false;
    bool ok = dr_file_size(file, &size);
    char *text = ok ? dr_global_alloc(size + 1) : NULL;
    ok = ok && dr_read_file(file, text, size) == (ssize_t)size;
    dr_close_file(file);
    if (!ok)
        return false;
    text[size] = '\0';
    uint32_t lines = 1;
    for (uint64_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    ranges = dr_global_alloc(lines * sizeof *ranges);
    for (const char *line = text; ok && line < text + size;) {
        const char *end = strchr(line, '\n');
        if (end == NULL)
            end = text + size;
        if (end > line && *line != '#')
            ok = parse_line(line, end, &ranges[range_count++]);
        line = end + 1;
    }
    dr_global_free(text, size + 1);
    is_limited = true;
    return ok;
}

void ff_ranges_module(const char *path, uint64_t base)
{
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    for (uint32_t i = 0; i < range_count; i++) {
        if (strcmp(ranges[i].module, name) != 0)
            continue;
        if (active_count == active_capacity) {
            uint32_t capacity = active_capacity == 0 ? 32 : active_capacity * 2;
            struct active *more = dr_global_alloc(capacity * sizeof *more);
            if (active != NULL) {
                memcpy(more, active, active_count * sizeof *more);
                dr_global_free(active, active_capacity * sizeof *active);
            }
            active = more;
            active_capacity = capacity;
        }
        active[active_count++] =
            (struct active){(app_pc)(base + ranges[i].start), (app_pc)(base + ranges[i].end)};
    }
}

bool ff_ranges_want(app_pc start, app_pc end)
{
    if (!is_limited)
        return true;
    bool wanted = false;
    ff_lock();
    for (uint32_t i = 0; i < active_count && !wanted; i++)
        wanted = start < active[i].end && end > active[i].start;
    ff_unlock();
    return wanted;
}
