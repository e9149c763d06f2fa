// SPDX-License-Identifier: MIT
"use strict";
const { Worker } = require("worker_threads");
const { role } = require(process.env.PYTHONPATH + "/truth.js");

const shared = new SharedArrayBuffer(64);
// The pattern by which the truth finds the words; it is made of parts, so that it is there once.
const pattern = [0x1cfed011, 0xf00ddead, 0xe0fe0fac, 0xc3c3a5a5];
const words = new Uint32Array(shared);

const code = `
  const { workerData } = require("worker_threads");
  const words = new Int32Array(workerData);
  Atomics.wait(words, 6, 0); // nobody wakes it
  Atomics.store(words, 4, 1);
`;
const worker = new Worker(code, { eval: true, workerData: shared });
worker.on("online", () => setTimeout(() => {
  role("waiter");
  pattern.forEach((part, index) => { words[index] = part; });
  while (Atomics.load(words, 4) !== 1);
  setTimeout(() => process.exit(0), 5000);
}, 200));
