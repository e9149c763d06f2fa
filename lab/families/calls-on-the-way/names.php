<?php // SPDX-License-Identifier: MIT
$found = 0;
for ($i = 0; ; $i++) {
    $found += file_exists("/tmp/candidate-$i") ? 1 : 0;
}
