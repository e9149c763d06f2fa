// SPDX-License-Identifier: MIT
"use strict";
const fs = require("fs");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
const path = process.env.LAB_RUN + "/never";
const later = process.argv[2] === "timer" ? (next) => setTimeout(next, 2) : setImmediate;

function look() {
  if (fs.existsSync(path)) {
    process.exit(0);
  }
  later(look);
}

role("waiter");
truth("ready");
look();
