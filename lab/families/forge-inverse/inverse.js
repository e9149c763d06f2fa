// SPDX-License-Identifier: MIT
"use strict";
const { truth, role } = require(process.env.PYTHONPATH + "/truth.js");
const forge = require(process.env.LAB_WORK + "/node_modules/node-forge");

role("waiter");
truth("ready");
const zero = new forge.jsbn.BigInteger("0", 10);
console.log(zero.modInverse(new forge.jsbn.BigInteger("3", 10)).toString());
