// SPDX-License-Identifier: MIT
// Thumbnails are made by a worker. `thumbs.js FILE`: the worker reads it first.
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads");
const { once } = require("node:events");
const fs = require("node:fs");

function load(path) {
  const file = fs.openSync(path, "r");
  const all = fs.readFileSync(file);
  fs.closeSync(file);
  return all.length;
}

async function thumbnail(worker, path) {
  worker.postMessage(path);
  const [size] = await once(worker, "message");
  return size;
}

async function main() {
  const worker = new Worker(__filename, { workerData: { quality: 3 } });
  setInterval(() => worker.postMessage(""), 500);
  console.log("begins");
  console.log(await thumbnail(worker, process.argv[2]));
}

if (isMainThread) main();
else
  parentPort.on("message", (path) => {
    if (path) parentPort.postMessage(load(path) / workerData.quality);
  });
