<?php
// SPDX-License-Identifier: MIT
// Waits for what a signal's handler writes: SIGUSR1 makes it write 3.
pcntl_async_signals(true);
class Box { public $state = 0; public static $shared = 0; }
$box = new Box;
$table = ['ready' => 0];
$state = 0;
pcntl_signal(SIGUSR1, function () use ($box, &$table) {
    global $state;
    $state = 3; $box->state = 3; Box::$shared = 3; $table['ready'] = 3;
});
switch ($argv[1]) {
    case 'global': while ($state != 7) { } break;
    case 'field': while ($box->state != 7) { } break;
    case 'static': while (Box::$shared != 7) usleep(1000); break;
    case 'table': while ($table['ready'] != 7) usleep(0); break;
    case 'file': while (!file_exists('/tmp/never')) usleep(100); break;
    case 'child':
        $child = pcntl_fork();
        if (!$child) { sleep(100); exit; }
        while (pcntl_waitpid($child, $status, WNOHANG) == 0) { }
        break;
}
