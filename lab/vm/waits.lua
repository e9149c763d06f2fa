-- SPDX-License-Identifier: MIT
-- Waits for what a signal's handler writes: SIGUSR1 makes it write 3.
local how = arg[1]
local signal, unistd = require "posix.signal", require "posix.unistd"
local wait = require "posix.sys.wait"
local box, cells, up = { state = 0 }, { 0, 0, 0, 0, 0 }, 0
state = 0
signal.signal(signal.SIGUSR1, function() box.state = 3; cells[5] = 3; up = 3; state = 3 end)
if how == "field" then while box.state ~= 7 do end
elseif how == "cells" then while cells[5] ~= 7 do end
elseif how == "global" then while state ~= 7 do end
elseif how == "file" then while not io.open("/tmp/never") do end
elseif how == "access" then while not unistd.access("/tmp/never") do end
elseif how == "child" then
  local child = unistd.fork()
  if child == 0 then unistd.sleep(100) end
  while wait.wait(child, wait.WNOHANG) == 0 do end
end
