// SPDX-License-Identifier: MIT
const net = require('net');
const { spawnSync } = require('child_process');

const CLIENT = `
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
    print(server.recv(10))
`;
const server = net.createServer((client) => client.end('hello\n'));
server.listen(0, '127.0.0.1', () => {
  console.log('started');
  const port = String(server.address().port);
  const ran = spawnSync(process.argv[2], ['-c', CLIENT, port]);
  console.log(ran.stdout.toString());
  server.close();
});
