-- SPDX-License-Identifier: MIT
-- LuaJIT waits for what stands in a file that it maps: SIGUSR1 is not needed, the bench writes.
local ffi = require "ffi"
ffi.cdef [[
int open(const char *path, int flags, ...);
void *mmap(void *at, size_t size, int rights, int flags, int file, long offset);
int sched_yield(void);
int usleep(unsigned us);
int access(const char *path, int mode);
]]
local how, path = arg[1], arg[2]
local file = ffi.C.open(path, 2)
local words = ffi.cast("volatile int *", ffi.C.mmap(nil, 4096, 3, 1, file, 0))
if how == "nothing" then while words[5] ~= 7 do end
elseif how == "yield" then while words[5] ~= 7 do ffi.C.sched_yield() end
elseif how == "sleep" then while words[5] ~= 7 do ffi.C.usleep(500) end
elseif how == "file" then while ffi.C.access("/tmp/never", 0) ~= 0 do end
end
