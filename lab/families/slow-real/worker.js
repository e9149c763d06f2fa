// SPDX-License-Identifier: MIT
// A page asks a thread for thumbnails; one of them is large.
"use strict";
const { Worker, isMainThread, parentPort } = require("worker_threads");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
const crypto = require("crypto");

if (isMainThread) {
  const worker = new Worker(__filename);
  let i = 0;
  const next = () => worker.postMessage(++i);
  worker.on("message", () => {
    if (i < 60) return setTimeout(next, 8);
    truth("ready");
    process.exit(0);
  });
  next();
} else {
  role("thumbnails");
  parentPort.on("message", (i) => {
    crypto.pbkdf2Sync("a", "b", i === 40 ? 400000 : 500, 32, "sha256");
    parentPort.postMessage(i);
  });
}
