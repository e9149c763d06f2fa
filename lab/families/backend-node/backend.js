// SPDX-License-Identifier: MIT
// A worker waits for a word that the first thread sets once a line came.
'use strict';
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');

if (isMainThread) {
  console.log('begins');
  const shared = new SharedArrayBuffer(4);
  const worker = new Worker(__filename, { workerData: shared });
  worker.once('message', (text) => console.log(text));
  process.stdin.once('data', () => {
    Atomics.store(new Int32Array(shared), 0, 1);
    Atomics.notify(new Int32Array(shared), 0);
  });
} else {
  Atomics.wait(new Int32Array(workerData), 0, 0);
  parentPort.postMessage('set');
}
