# SPDX-License-Identifier: MIT
use strict;
use warnings;
use lib $ENV{PYTHONPATH};
use LabTruth;

role('waiter');
truth('ready');
my ($number, @found) = (2);
NUMBER: while (1) {
    $number++;
    for my $prime (@found[0 .. ($#found < 200 ? $#found : 200)]) {
        next NUMBER if $number % $prime == 0;
    }
    push @found, $number;
    @found = () if @found > 100_000;
}
