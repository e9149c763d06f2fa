// SPDX-License-Identifier: MIT
// How a program of node says what is true of it, as truth.h does for C.
"use strict";
const fs = require("fs");

function truth(line) {
  fs.appendFileSync(process.env.LAB_TRUTH || "/dev/stderr", line + "\n");
}

// The calling thread has this role.
function role(name) {
  const [pid, , tid] = fs.readlinkSync("/proc/thread-self").split("/");
  truth(`role ${name} ${pid} ${tid}`);
}

module.exports = { truth, role };
