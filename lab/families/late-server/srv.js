// SPDX-License-Identifier: MIT
const http = require('http');
http.createServer((request, answer) => {
  const end = Date.now() + (request.url === '/slow' ? 700 : 2);
  while (Date.now() < end);
  answer.end('x');
}).listen(8931, '127.0.0.1', () => console.log('up'));
