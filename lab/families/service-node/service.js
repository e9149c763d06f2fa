// SPDX-License-Identifier: MIT
// Hangs of small services: `service.js HANG` says that it begins, and stands a moment later.
'use strict';
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
const net = require('net');
const fs = require('fs');
const { execFileSync } = require('child_process');

const waiting = new Map();

function ask(key) {
  return new Promise((resolve) => waiting.set(key, resolve));
}

function answered(key, value) {
  const resolve = waiting.get(key);
  waiting.delete(key);
  resolve(value);
}

// Nobody resolves what it asked for.
async function forgotten() {
  const first = ask('a');
  ask('b');
  setTimeout(() => answered('b', 1), 100);
  console.log(await first);
}

// main waits for a worker, which waits for a word that nobody changes.
async function atomics() {
  const shared = new SharedArrayBuffer(8);
  const worker = new Worker(__filename, { workerData: { hang: 'wait', shared } });
  console.log(await new Promise((resolve) => worker.once('message', resolve)));
}

function wait() {
  const words = new Int32Array(workerData.shared);
  Atomics.wait(words, 1, 0);
  parentPort.postMessage('done');
}

// A worker reads a silent pipe; main waits for its answer.
async function reads() {
  const worker = new Worker(__filename, { workerData: { hang: 'readLine' } });
  console.log(await new Promise((resolve) => worker.once('message', resolve)));
}

function readLine() {
  const bytes = Buffer.alloc(1);
  fs.readSync(0, bytes, 0, 1);
  parentPort.postMessage(String(bytes));
}

// A worker waits for a child.
async function child() {
  const worker = new Worker(__filename, { workerData: { hang: 'convert' } });
  console.log(await new Promise((resolve) => worker.once('message', resolve)));
}

function convert() {
  parentPort.postMessage(String(execFileSync('sleep', ['3600'])));
}

if (isMainThread) {
  console.log('begins');
  if (process.argv[2] !== 'child') {
    net.createServer(() => {}).listen(0, '127.0.0.1');
    setInterval(() => {}, 250);
  }
  ({ forgotten, atomics, reads, child })[process.argv[2]]();
} else {
  ({ wait, readLine, convert })[workerData.hang]();
}
