/* SPDX-License-Identifier: MIT */
/* What a virtual machine of Java holds: three threads, of which one enters a monitor, one is parked
 * for a lock and one waits on an object; the tables by which HotSpot tells where things lie. */
#include <stddef.h>

typedef unsigned long word;
struct symbol { unsigned short length, uses; char body[60]; };
struct klass;
struct array { int length, unused; const void *data[4]; };
struct klass {
    int layout, unused;
    const struct symbol *name;
    struct klass *super, *next;
    const void *mirror;
    const struct array *methods, *interfaces;
};
struct object { word mark; struct klass *klass; const void *fields[4]; };
struct pool {
    const struct klass *holder;
    const struct cache *cache;
    const struct array *resolved;
    unsigned short file, unused[3];
    const void *entries[8];
};
struct cache { word size; struct { word indices, resolved[3]; } entries[4]; };
struct constant {
    struct pool *pool;
    unsigned short code_size, name, flags, unused;
    unsigned char code[64];
};
struct method { const struct constant *constant; word unused; };
struct anchor { const void *sp, *pc, *fp; };
struct os_thread { int id, unused; };
struct monitor { const void *owner; struct object **object; };
struct thread {
    const void *kind;
    struct object **object;
    struct os_thread *os;
    struct monitor *pending, *waiting;
    int state, top;
    word locks[4];
    const char *stack_base;
    word stack_size;
    struct anchor anchor;
};

#define SYMBOL(name, text) struct symbol name = {sizeof text - 1, 1, text}
SYMBOL(n_object, "java/lang/Object");
SYMBOL(n_thread, "java/lang/Thread");
SYMBOL(n_owned, "java/util/concurrent/locks/AbstractOwnableSynchronizer");
SYMBOL(n_sync, "java/util/concurrent/locks/ReentrantLock$NonfairSync");
SYMBOL(n_queue, "java/util/concurrent/LinkedBlockingQueue");
SYMBOL(n_main, "app/Main");
SYMBOL(n_box, "app/Box");
SYMBOL(n_file, "Main.java");
SYMBOL(n_work, "work");
SYMBOL(n_wait, "wait");
SYMBOL(n_put, "put");
SYMBOL(n_done, "done");

extern struct method work, wait;
extern struct object main_mirror;
struct object *main_handle = &main_mirror;
struct array methods = {1, 0, {&work}}, waits = {1, 0, {&wait}}, none = {0, 0, {0}};
struct klass k_object = {24, 0, &n_object, 0, 0, &main_handle, &waits, &none};
struct klass k_thread = {48, 0, &n_thread, &k_object, &k_object, &main_handle, &none, &none};
struct klass k_owned = {32, 0, &n_owned, &k_object, &k_thread, &main_handle, &none, &none};
struct klass k_sync = {48, 0, &n_sync, &k_owned, &k_owned, &main_handle, &none, &none};
struct klass k_queue = {48, 0, &n_queue, &k_object, &k_sync, &main_handle, &none, &none};
struct klass k_main = {48, 0, &n_main, &k_object, &k_queue, &main_handle, &methods, &none};
struct klass k_box = {48, 0, &n_box, &k_main, &k_main, &main_handle, &none, &none};

extern struct object t1_object, t2_object, t3_object, lock, box;
struct object main_mirror = {1, &k_object, {&box, &lock, (void *)6}};
struct object lock = {1, &k_sync, {&t3_object}};
struct object box = {1, &k_box, {&lock, &t2_object}};
struct object t1_object = {1, &k_thread, {&box}};
struct object t2_object = {1, &k_thread, {&lock}};
struct object t3_object = {1, &k_thread, {&box, &lock}};
struct object *t1_handle = &t1_object, *t2_handle = &t2_object, *t3_handle = &t3_object;
struct object *box_handle = &box;

/* Of the first method: getstatic 0; ifeq back; invokevirtual 1 (put); putstatic 0; goto back. */
struct array resolved = {2, 0, {&k_main, &k_queue}};
struct cache cache = {2, {{6, {0}}, {7, {0}}}};
struct pool pool = {&k_main, &cache, &resolved, 1, {0},
    {&n_work, &n_file, &n_main, &n_queue, &n_done, &n_put,
        (void *)(2 << 16 | 0), (void *)(3 << 16 | 5)}};
struct pool of_object = {&k_object, &cache, &resolved, 0, {0}, {&n_wait}};
const struct constant c_work = {&pool, 14, 0, 1, 0,
    {178, 0, 0, 153, 255, 253, 182, 1, 0, 179, 0, 0, 167, 255, 244, 5, 33, 0}};
const struct constant c_wait = {&of_object, 4, 0, 0, 0, {182, 1, 0, 177}};
struct method work = {&c_work, 0}, wait = {&c_wait, 0};

/* A stack: a frame of the interpreter in Object.wait, that of its caller, and the end. */
word interpreter[16];
struct queue { const void *buffer; int limit, unused; };
struct queue queue = {interpreter, sizeof interpreter, 0};
struct queue *code = &queue;
const void *entry;
const void *stack[40] = {
    [0] = c_wait.code + 1,
    [5] = &wait,
    [7] = &stack[10],
    [8] = &stack[20],
    [9] = interpreter + 1,
    [12] = c_work.code + 6,
    [17] = &work,
    [19] = &stack[24],
    [20] = &stack[30],
    [21] = 0,
    [25] = &box,
};

struct monitor m_enters = {0, &box_handle}, m_waits = {0, &box_handle};
struct os_thread o1 = {4711, 0}, o2 = {4712, 0}, o3 = {4713, 0};
struct thread t1 = {&k_thread, &t1_handle, &o1, &m_enters, 0, 10, 80, {0},
    (char *)(stack + 40), sizeof stack, {stack, interpreter + 1, stack + 8}};
struct thread t2 = {&k_thread, &t2_handle, &o2, 0, 0, 10, 80, {0},
    (char *)(stack + 40), sizeof stack, {stack, interpreter + 1, stack + 8}};
struct thread t3 = {&k_thread, &t3_handle, &o3, 0, &m_waits, 10, 56, {(word)&box},
    (char *)(stack + 40), sizeof stack, {stack, interpreter + 1, stack + 8}};
struct thread *threads[] = {&t1, &t2, &t3};
struct list { int length, unused; struct thread **all; } the_list = {3, 0, threads};
struct list *java_threads = &the_list;
struct loader { struct klass *classes; struct loader *next; } loader = {&k_box, 0};
struct loader *head = &loader;
int version = 21, mirror_size = 40;

struct entry {
    const char *kind, *field, *type;
    int is_static, unused;
    word offset;
    const void *address;
};
#define FIELD(kind, field, of, as) {kind, field, 0, 0, 0, offsetof(of, as), 0}
#define STATIC(kind, field, at) {kind, field, 0, 1, 0, 0, &at}
struct entry table[] = {
    STATIC("ThreadsSMRSupport", "_java_thread_list", java_threads),
    FIELD("ThreadsList", "_length", struct list, length),
    FIELD("ThreadsList", "_threads", struct list, all),
    FIELD("JavaThread", "_osthread", struct thread, os),
    FIELD("JavaThread", "_threadObj", struct thread, object),
    FIELD("JavaThread", "_current_pending_monitor", struct thread, pending),
    FIELD("JavaThread", "_current_waiting_monitor", struct thread, waiting),
    FIELD("JavaThread", "_thread_state", struct thread, state),
    FIELD("JavaThread", "_anchor", struct thread, anchor),
    FIELD("JavaThread", "_lock_stack", struct thread, top),
    FIELD("LockStack", "_top", struct thread, kind),
    {"LockStack", "_base[0]", 0, 0, 0, 4, 0},
    FIELD("Thread", "_stack_base", struct thread, stack_base),
    FIELD("Thread", "_stack_size", struct thread, stack_size),
    FIELD("OSThread", "_thread_id", struct os_thread, id),
    FIELD("ObjectMonitor", "_owner", struct monitor, owner),
    FIELD("ObjectMonitor", "_object", struct monitor, object),
    FIELD("oopDesc", "_metadata._klass", struct object, klass),
    FIELD("Klass", "_layout_helper", struct klass, layout),
    FIELD("Klass", "_name", struct klass, name),
    FIELD("Klass", "_super", struct klass, super),
    FIELD("Klass", "_next_link", struct klass, next),
    FIELD("Klass", "_java_mirror", struct klass, mirror),
    FIELD("InstanceKlass", "_methods", struct klass, methods),
    FIELD("InstanceKlass", "_transitive_interfaces", struct klass, interfaces),
    FIELD("Array<int>", "_length", struct array, length),
    FIELD("Array<Method*>", "_data", struct array, data),
    FIELD("Array<Klass*>", "_data", struct array, data),
    FIELD("Symbol", "_length", struct symbol, length),
    FIELD("Symbol", "_body", struct symbol, body),
    FIELD("Method", "_constMethod", struct method, constant),
    FIELD("ConstMethod", "_constants", struct constant, pool),
    FIELD("ConstMethod", "_code_size", struct constant, code_size),
    FIELD("ConstMethod", "_name_index", struct constant, name),
    FIELD("ConstMethod", "_flags", struct constant, flags),
    FIELD("ConstantPool", "_pool_holder", struct pool, holder),
    FIELD("ConstantPool", "_cache", struct pool, cache),
    FIELD("ConstantPool", "_resolved_klasses", struct pool, resolved),
    FIELD("ConstantPool", "_source_file_name_index", struct pool, file),
    FIELD("ConstantPoolCacheEntry", "_indices", struct cache, size),
    FIELD("JavaFrameAnchor", "_last_Java_sp", struct anchor, sp),
    FIELD("JavaFrameAnchor", "_last_Java_pc", struct anchor, pc),
    FIELD("JavaFrameAnchor", "_last_Java_fp", struct anchor, fp),
    STATIC("AbstractInterpreter", "_code", code),
    FIELD("StubQueue", "_stub_buffer", struct queue, buffer),
    FIELD("StubQueue", "_buffer_limit", struct queue, limit),
    STATIC("StubRoutines", "_call_stub_return_address", entry),
    STATIC("Abstract_VM_Version", "_vm_major_version", version),
    STATIC("ClassLoaderDataGraph", "_head", head),
    FIELD("ClassLoaderData", "_klasses", struct loader, classes),
    FIELD("ClassLoaderData", "_next", struct loader, next),
    STATIC("java_lang_Class", "_oop_size_offset", mirror_size),
    {0},
};
struct { const char *kind; word size; } sizes[] = {
    {"ConstMethod", offsetof(struct constant, code)},
    {"ConstantPool", offsetof(struct pool, entries)},
    {"ConstantPoolCache", offsetof(struct cache, entries)},
    {"ConstantPoolCacheEntry", 32},
    {"PcDesc", 16},
    {"HeapBlock", 16},
    {0},
};
void *gHotSpotVMStructs = table, *gHotSpotVMTypes = sizes;
word gHotSpotVMStructEntryTypeNameOffset = offsetof(struct entry, kind),
     gHotSpotVMStructEntryFieldNameOffset = offsetof(struct entry, field),
     gHotSpotVMStructEntryIsStaticOffset = offsetof(struct entry, is_static),
     gHotSpotVMStructEntryOffsetOffset = offsetof(struct entry, offset),
     gHotSpotVMStructEntryAddressOffset = offsetof(struct entry, address),
     gHotSpotVMStructEntryArrayStride = sizeof(struct entry),
     gHotSpotVMTypeEntryTypeNameOffset = 0, gHotSpotVMTypeEntrySizeOffset = 8,
     gHotSpotVMTypeEntryArrayStride = 16;
void start(void) {}
