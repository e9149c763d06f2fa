// main awaits a message of a worker thread that has ended without posting one; an interval keeps node alive
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (!isMainThread) { setTimeout(() => { if (workerData.n !== 2) parentPort.postMessage(workerData.n); }, 50); }
else {
  setInterval(() => {}, 500);
  const ask = (n) => new Promise((resolve) => { const w = new Worker(__filename, { workerData: { n } }); w.once("message", resolve); });
  (async function collect() { const all = await Promise.all([1, 2, 3].map(ask)); console.log(all); process.exit(0); })();
}
