# SPDX-License-Identifier: MIT
open(my $log, ">", "/dev/null");
my $sum = 0;
for (my $i = 0; ; $i++) {
    $sum = ($sum * 31 + $i) % 1000003;
    syswrite($log, "$sum\n") if $i % 200 == 0;
}
