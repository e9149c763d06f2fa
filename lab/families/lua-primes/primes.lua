-- SPDX-License-Identifier: MIT
local file = assert(io.open(os.getenv("LAB_TRUTH"), "a"))
file:write("ready\n")
file:close()
local found, number = {}, 2
while true do
  local prime = true
  for index = 1, math.min(#found, 200) do
    if number % found[index] == 0 then prime = false break end
  end
  if prime then found[#found + 1] = number end
  if #found > 100000 then found = {} end
  number = number + 1
end
