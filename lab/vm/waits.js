// SPDX-License-Identifier: MIT
// The main thread waits for what a worker writes. Each line on the worker's pipe makes it write 3.
const { Worker, isMainThread, workerData } = require('worker_threads');
const fs = require('fs');

if (!isMainThread) {
  const line = Buffer.alloc(1);
  while (fs.readSync(0, line, 0, 1) > 0) {
    Atomics.store(new Int32Array(workerData), 5, 3);
  }
} else {
  const shared = new SharedArrayBuffer(64);
  const cells = new Int32Array(shared);
  const box = { state: 0 };
  const table = new Map([['ready', 0]]);
  process.on('SIGUSR1', () => { box.state = 3; table.set('ready', 3); });
  new Worker(__filename, { workerData: shared });
  const again = (test) => { const turn = () => { if (!test()) setImmediate(turn); }; turn(); };
  const later = (test) => { const turn = () => { if (!test()) setTimeout(turn, 1); }; turn(); };
  const waits = {
    nothing: () => { while (Atomics.load(cells, 5) !== 7) ; },
    plain: () => { while (cells[5] !== 7) ; },
    short: () => { while (Atomics.load(cells, 5) !== 7) Atomics.wait(cells, 9, 0, 1); },
    exchange: () => { while (Atomics.compareExchange(cells, 5, 7, 8) !== 7) ; },
    immediate: () => again(() => box.state === 7),
    table: () => again(() => table.get('ready') === 7),
    timer: () => later(() => box.state === 7),
    file: () => { while (!fs.existsSync('/tmp/never')) ; },
  };
  setTimeout(waits[process.argv[2]], 300);
}
