// SPDX-License-Identifier: MIT
"use strict";
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
const jpeg = require(process.env.LAB_WORK + "/node_modules/jpeg-js");

// A frame without components, as it was reported.
const bytes = Buffer.from("ffd8ffc1f151d800ff51d800ffdaffde", "hex");
role("waiter");
truth("ready");
console.log(jpeg.decode(bytes));
