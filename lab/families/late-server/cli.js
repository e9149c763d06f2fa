// SPDX-License-Identifier: MIT
const { spawn } = require('child_process'), http = require('http');
process.title = 'webcli';
const server = spawn(process.execPath, [__dirname + '/srv.js']);
console.log(server.pid);
const where = { port: 8931, host: '127.0.0.1' };
const get = path => new Promise(done =>
  http.get({ ...where, path }, answer => { answer.resume(); answer.on('end', done); }));
server.stdout.once('data', async () => {
  for (let i = 0; i < 15; i++) {
    await get('/a');
    await new Promise(done => setTimeout(done, 8));
  }
  await get('/slow');
  for (let i = 0; i < 5; i++) await get('/a');
  server.kill();
  process.exit(0);
});
