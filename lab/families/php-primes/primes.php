<?php
// SPDX-License-Identifier: MIT
file_put_contents(getenv('LAB_TRUTH'), "ready\n", FILE_APPEND);
$found = [];
for ($number = 2; ; $number++) {
    $prime = true;
    foreach (array_slice($found, 0, 200) as $one) {
        if ($number % $one == 0) {
            $prime = false;
            break;
        }
    }
    if ($prime) {
        $found[] = $number;
    }
    if (count($found) > 100000) {
        $found = [];
    }
}
