// SPDX-License-Identifier: MIT
// One of the answers is made in a single long computation.
"use strict";
const http = require("http");
const crypto = require("crypto");
const { role } = require(process.env.LAB_NODE + "/truth.js");

role("node");
http
  .createServer((request, response) => {
    const key = crypto.pbkdf2Sync("a", "b", request.url === "/25" ? 600000 : 500, 64, "sha512");
    response.end(key.toString("hex"));
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
