// SPDX-License-Identifier: MIT
"use strict";
const net = require("net");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
const { createPool } = require(process.env.LAB_WORK + "/node_modules/generic-pool");

const server = net.createServer((socket) => socket.resume());
server.listen(0, "127.0.0.1", async () => {
  const pool = createPool({
    create: () => new Promise((found) => {
      const socket = net.connect(server.address().port, "127.0.0.1", () => found(socket));
    }),
    destroy: (socket) => socket.destroy(),
  }, { max: 2 });
  const job = async () => {
    const first = await pool.acquire();
    await new Promise((later) => setTimeout(later, 50));
    const second = await pool.acquire(); // within the transaction of the first
    pool.release(second);
    pool.release(first);
  };
  role("waiter");
  setTimeout(() => truth("ready"), 400);
  await Promise.all([job(), job(), job()]);
  process.exit(0);
});
