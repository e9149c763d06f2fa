// SPDX-License-Identifier: MIT
"use strict";
const v8 = require("v8");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");

const cache = [];
while (v8.getHeapStatistics().used_heap_size < 48 * 2 ** 20) {
  for (let entry = 0; entry < 1000; entry++) {
    cache.push({ number: cache.length, next: null });
  }
}
role("waiter");
truth("ready");
for (let round = 0; ; round++) {
  cache[(round * 7919) % cache.length] = { number: round, next: null };
}
