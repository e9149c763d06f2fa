// SPDX-License-Identifier: MIT
// A handler takes a client and forgets to release it on one path. With max 2 the third request
// waits for ever.
const { Pool } = require('pg');
const pool = new Pool({
  host: process.argv[2],
  port: +process.argv[3],
  user: 'postgres',
  database: 'postgres',
  max: 2,
  idleTimeoutMillis: 0,
});
async function countRows(id) {
  const client = await pool.connect();
  const r = await client.query('select 1 as n');
  if (r.rows[0].n === 1) return id;      // early return: no release()
  client.release();
}
(async () => {
  for (let i = 0; i < 4; i++) console.log('request', await countRows(i));
  await pool.end();
})();
