# SPDX-License-Identifier: MIT
use strict;
use warnings;
use threads;
use threads::shared;
use lib $ENV{PYTHONPATH};
use LabTruth;

my $finished : shared = 0;
my $worker = threads->create(sub {
    die "no such job\n";
    lock $finished;
    $finished = 1;
    cond_signal $finished;
});
$worker->detach;
select undef, undef, undef, 0.3;
role('waiter');
truth('ready');
lock $finished;
cond_wait $finished until $finished;
