<?php
mt_srand(5); $rounds = 0;
while (true) {
    $rows = []; for ($i = 0; $i < 2000; $i++) $rows[] = ['id' => mt_rand(), 'name' => "n" . mt_rand(0, 500)];
    usort($rows, fn($a, $b) => strcmp($a['name'], $b['name']) ?: $a['id'] <=> $b['id']);
    $names = array_count_values(array_column($rows, 'name')); arsort($names);
    preg_match_all('/(n\d+)[^n]*\1/', implode(' ', array_keys($names)), $m); $rounds += count($m[0]);
}
