<?php
// SPDX-License-Identifier: MIT
function truth(string $line): void
{
    file_put_contents(getenv('LAB_TRUTH'), $line . "\n", FILE_APPEND);
}

$key = getmypid() + 0x4c000000;
$segment = shmop_open($key, 'n', 0600, 64);
exec('ipcs -m', $lines);
foreach ($lines as $line) {
    if (stripos($line, sprintf('0x%08x', $key)) === 0) {
        file_put_contents(getenv('LAB_RUN') . '/segment', preg_split('/\s+/', $line)[1]);
    }
}
$code = 'posix_kill(posix_getpid(), SIGSTOP);'
    . '$s = shmop_open((int) $argv[1], "w", 0, 0); shmop_write($s, "done", 16);';
$writer = proc_open([PHP_BINARY, '-r', $code, '--', (string) $key], [], $pipes);
usleep(500000);
truth('role writer ' . proc_get_status($writer)['pid']);
truth('role waiter ' . getmypid());
// The pattern by which the truth finds the segment is whole only there.
shmop_write($segment, 'Php-lab-', 0);
shmop_write($segment, 'segment!', 8);
shmop_write($segment, 'wait', 16);
while (shmop_read($segment, 16, 4) !== 'done') {
    usleep(500);
}
sleep(5);
