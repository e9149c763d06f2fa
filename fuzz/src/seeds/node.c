/* SPDX-License-Identifier: MIT */
/* What node holds: a stack with a frame of the interpreter, the function, its script with the text
 * and a map, and the constants by which V8 tells where things lie. */
typedef unsigned long word;
#define MARKED(object) ((char *)&object + 1)
#define SMALL(number) ((word)(number) << 32)
struct map { const void *map; unsigned short kind, unused[3]; };
struct map of_map = {MARKED(of_map), 1}, of_string = {MARKED(of_map), 8},
           of_shared = {MARKED(of_map), 0x201}, of_script = {MARKED(of_map), 0x202},
           of_code = {MARKED(of_map), 0x203}, of_bytes = {MARKED(of_map), 0x204},
           of_scope = {MARKED(of_map), 0x205}, of_function = {MARKED(of_map), 0x206};
#define STRING(name, room, text) \
    struct { const void *map; int hash, length; char body[room]; } name = \
        {MARKED(of_string), 0, sizeof text - 1, text}
STRING(file, 32, "file:///srv/app/main.js");
STRING(own, 32, "load");
STRING(source, 2560,
    "const wait = require('wait');\n"
    "async function load(done) {\n  while (!done.get()) wait(1);\n  return done;\n}\n"
    "it('waits', () => load(0));\n"
    "//# sourceMappingURL=data:application/json;base64,"
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n");
struct { const void *map, *source, *name; } script = {MARKED(of_script), MARKED(source),
    MARKED(file)};
struct { const void *map; word flags; const void *name, *before; word begin, end;
    const void *outer, *rest; } scope = {MARKED(of_scope), 0, MARKED(own), MARKED(own),
    SMALL(44), SMALL(104), MARKED(scope), 0};
struct { const void *map, *script, *name; } shared = {MARKED(of_shared), MARKED(script),
    MARKED(scope)};
struct { const void *map, *shared; } function = {MARKED(of_function), MARKED(shared)};
struct { const void *map; word length; unsigned char bytes[16]; } places = {MARKED(of_bytes),
    SMALL(8), {0, 0xc0, 1, 11, 40, 2, 20, 0}};
struct { const void *map; word length; const void *handlers, *places, *rest[2]; word body[4]; }
    code = {MARKED(of_code), SMALL(32), MARKED(places), MARKED(places)};
const void *stack[40] = {
    [6] = (void *)SMALL(52),
    [7] = MARKED(code),
    [8] = MARKED(function),
    [9] = MARKED(function),
    [10] = stack + 30,
    [11] = (void *)0x400000,
};
#define CONSTANT(name, value) int v8dbg_##name = value
CONSTANT(off_fp_function, -16);
CONSTANT(off_fp_context, -8);
CONSTANT(off_fp_bytecode_array, -24);
CONSTANT(off_fp_bytecode_offset, -32);
CONSTANT(HeapObjectTagMask, 3);
CONSTANT(HeapObjectTag, 1);
CONSTANT(SmiTagMask, 1);
CONSTANT(SmiTag, 0);
CONSTANT(SmiShiftSize, 31);
CONSTANT(IsNotStringMask, 0xff80);
CONSTANT(StringTag, 0);
CONSTANT(StringRepresentationMask, 7);
CONSTANT(SeqStringTag, 0);
CONSTANT(ConsStringTag, 1);
CONSTANT(ThinStringTag, 5);
CONSTANT(StringEncodingMask, 8);
CONSTANT(OneByteStringTag, 8);
CONSTANT(type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE, 0x201);
CONSTANT(type_Script__SCRIPT_TYPE, 0x202);
CONSTANT(type_BytecodeArray__BYTECODE_ARRAY_TYPE, 0x203);
CONSTANT(type_ByteArray__BYTE_ARRAY_TYPE, 0x204);
CONSTANT(type_ScopeInfo__SCOPE_INFO_TYPE, 0x205);
CONSTANT(class_HeapObject__map__Map, 0);
CONSTANT(class_Map__instance_type__uint16_t, 8);
CONSTANT(class_JSFunction__shared__SharedFunctionInfo, 8);
CONSTANT(class_SharedFunctionInfo__script_or_debug_info__HeapObject, 8);
CONSTANT(class_SharedFunctionInfo__name_or_scope_info__Object, 16);
CONSTANT(class_Script__source__Object, 8);
CONSTANT(class_Script__name__Object, 16);
CONSTANT(class_String__length__int32_t, 12);
CONSTANT(class_SeqOneByteString__chars__char, 16);
CONSTANT(class_SeqTwoByteString__chars__char, 16);
CONSTANT(class_ThinString__actual__String, 16);
CONSTANT(class_ConsString__first__String, 16);
CONSTANT(class_BytecodeArray__data__uintptr_t, 48);
CONSTANT(class_FixedArrayBase__length__SMI, 8);
CONSTANT(class_FixedArray__data__uintptr_t, 16);
void start(void) {}
