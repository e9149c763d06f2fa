# SPDX-License-Identifier: MIT
# Two threads of Perl that wait, each in functions of this file.
use strict;
use warnings;
use threads;
use Thread::Queue;

my $jobs = Thread::Queue->new;

sub take {
    my ($queue) = @_;
    for my $number (1 .. 2) {
        my $job = $queue->dequeue; # takes
        print "$job\n";
    }
    return;
}

sub work {
    return eval { take($jobs) };    # calls take
}

sub wait_for {
    my ($worker) = @_;
    return $worker->join;           # joins
}

my $worker = threads->create(\&work);
$| = 1;
print "ready\n";
if (@ARGV) {
    my $sum = 0;
    while (1) {
        $sum += length "spins";     # spins
    }
}
wait_for($worker);                  # calls wait_for
