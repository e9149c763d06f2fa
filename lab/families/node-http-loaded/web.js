// SPDX-License-Identifier: MIT
"use strict";
const http = require("http");
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");

let answered = 0;
const server = http.createServer((request, response) => {
  answered += 1;
  response.end(JSON.stringify({ url: request.url, answered }));
});
const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });

function ask(left) {
  if (left === 0) {
    return;
  }
  const { port } = server.address();
  http.get({ port, host: "127.0.0.1", path: `/${left}`, agent }, (answer) => {
    answer.resume();
    answer.on("end", () => ask(left - 1));
  });
}

server.listen(0, "127.0.0.1", () => {
  role("waiter");
  for (let client = 0; client < 4; client++) {
    ask(5_000_000);
  }
  setTimeout(() => truth("ready"), 300);
});
