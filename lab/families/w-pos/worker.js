// The main thread spins on shared memory; a worker writes it once a line comes.
const { Worker, isMainThread, workerData } = require("worker_threads");
if (isMainThread) { const b = new SharedArrayBuffer(64), a = new Int32Array(b); new Worker(__filename, { workerData: b }); let n = 0;
  setTimeout(() => { while (Atomics.load(a, 5) !== 7) n++; }, 500); }
else { const a = new Int32Array(workerData); const fs = require("fs"); const c = Buffer.alloc(1); while (fs.readSync(0, c) === 1) Atomics.store(a, 5, 3); }
