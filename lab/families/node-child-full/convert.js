// SPDX-License-Identifier: MIT
// A service converts files with a command line tool. `convert.js full`: what the tool writes is not
// read before it has ended.
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const http = require("node:http");

const TOOL = `const page = " ".repeat(100) + "\\n";
for (let i = 0; i < 4000; i++) process.stdout.write("page " + i + page)`;

async function convert(isRead) {
  const tool = spawn(process.execPath, ["-e", TOOL], { stdio: ["ignore", "pipe", "inherit"] });
  const parts = [];
  if (isRead) tool.stdout.on("data", (part) => parts.push(part));
  const [code] = await once(tool, "exit");
  if (code !== 0) throw new Error(`the tool ended with ${code}`);
  for await (const part of tool.stdout) parts.push(part);
  return Buffer.concat(parts);
}

async function main() {
  const server = http.createServer((request, response) => response.end("fine"));
  server.listen(0, "127.0.0.1");
  setInterval(() => server.emit("tick"), 1000);
  console.log("begins");
  const text = await convert(process.argv[2] !== "full");
  console.log(`${text.length} bytes`);
}

main();
