// SPDX-License-Identifier: MIT
"use strict";
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
role("waiter");
truth("ready");
const sums = new Map();
const cells = new Float64Array(40000);
for (let round = 0; ; round++) {
  let sum = 0;
  for (let cell = 0; cell < cells.length; cell++) {
    cells[cell] = cells[(cell * 7) % 40000] * 0.5 + round;
    sum += cells[cell];
  }
  sums.set("sum" + (round % 1000), sum);
}
