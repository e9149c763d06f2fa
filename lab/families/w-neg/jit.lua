local count, t = 0, {}
for i = 1, 5000 do t[i] = (i * 7919) % 5003 end
while true do for i = 2, #t do local v, j = t[i], i - 1; while j > 0 and t[j] > v do t[j + 1] = t[j]; j = j - 1 end; t[j + 1] = v end
  count = count + 1; for i = 1, #t do t[i] = (t[i] * 7919 + count) % 5003 end end
