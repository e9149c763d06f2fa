// SPDX-License-Identifier: MIT
// A file is read by the only thread of node's pool, which hashes a password for another request.
"use strict";
const fs = require("fs");
const crypto = require("crypto");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");

const used = () =>
  fs.readdirSync("/proc/self/task").map((tid) => {
    const text = fs.readFileSync(`/proc/self/task/${tid}/schedstat`, "utf8");
    return [Number(text.split(" ")[0]), tid];
  });

role("service");
let i = 0;
const next = () => {
  if (++i === 40) {
    crypto.pbkdf2("a", "b", 500000, 64, "sha512", () => {
      const others = used().filter(([, tid]) => Number(tid) !== process.pid);
      truth(`role hasher ${process.pid} ${others.sort((a, b) => b[0] - a[0])[0][1]}`);
    });
  }
  fs.readFile(__filename, () => {
    if (i < 80) return setTimeout(next, 8);
    truth("ready");
    process.exit(0);
  });
};
next();
