<?php // SPDX-License-Identifier: MIT
$tries = 0;
while (!file_exists("/tmp/never-there")) {
    clearstatcache();
    $tries++;
}
