// SPDX-License-Identifier: MIT
// A cache asks once for what many want. `cache.js lost`: an answer without a body resolves nothing.
const http = require("node:http");
const { EventEmitter } = require("node:events");

class Store extends EventEmitter {
  constructor(port) {
    super();
    this.port = port;
  }

  get(path) {
    return new Promise((resolve, reject) => {
      const request = http.get({ port: this.port, path, agent: this.agent }, (response) => {
        if (response.statusCode === 204) return response.resume();
        let text = "";
        response.on("data", (part) => (text += part));
        response.on("end", () => resolve(text));
      });
      request.on("error", reject);
    });
  }
}

class Cache {
  constructor(store) {
    this.store = store;
    this.known = new Map();
  }

  find(path) {
    if (!this.known.has(path)) this.known.set(path, this.store.get(path));
    return this.known.get(path);
  }
}

async function render(cache, paths) {
  const parts = [];
  for (const path of paths) parts.push(await cache.find(path));
  return parts.join("\n");
}

async function main() {
  const isLost = process.argv[2] === "lost";
  let cache;
  const server = http.createServer((request, response) => {
    if (isLost && request.url === "/footer") response.writeHead(204).end();
    else if (request.url === "/stats") response.end(`${cache.known.size} known`);
    else response.end(`text of ${request.url}`);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  cache = new Cache(new Store(server.address().port));
  console.log("begins");
  const page = await render(cache, ["/header", "/body", "/footer"]);
  console.log(page);
}

main();
