# SPDX-License-Identifier: MIT
# It works, and looks on its way whether a file tells it to write a summary.
my $sum = 0;
for (my $i = 0; ; $i++) {
    for my $j (1 .. 20000) { $sum = ($sum * 33 + $j + $i) % 1000003 }
    print "$sum\n" if -e "/tmp/tell-me";
}
