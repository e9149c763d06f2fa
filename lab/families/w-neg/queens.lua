local function ok(a, n, c) for i = 1, n - 1 do if a[i] == c or a[i] - i == c - n or a[i] + i == c + n then return false end end return true end
local count = 0
local function add(a, n, size) if n > size then count = count + 1 else for c = 1, size do if ok(a, n, c) then a[n] = c; add(a, n + 1, size) end end end end
while true do add({}, 1, 8) end
