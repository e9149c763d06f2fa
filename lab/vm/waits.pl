# SPDX-License-Identifier: MIT
# The main thread waits for what another writes. Each line on stdin makes that write 3.
use strict;
use warnings;
use threads;
use threads::shared;
use Thread::Queue;
use Time::HiRes qw(usleep);
use POSIX ":sys_wait_h";
use Socket;

my $state : shared = 0;
my %table : shared = (ready => 0);
my @cells : shared = (0) x 16;
my $lock : shared = 0;
my $queue = Thread::Queue->new;
our $plain = 0;
my $how = shift;
my $child = $how eq "child" ? fork() : 1;
if (!$child) { sleep 100 }
$SIG{USR1} = sub { $plain = 3 };
my $writer = threads->create(sub {
    lock($lock);
    while (my $line = <STDIN>) { $state = 3; $table{ready} = 3; $cells[5] = 3 }
});
socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC);
$ours->blocking(0);
sleep 1 if $how eq "lock";
my %waits = (
    nothing => sub { while ($state != 7) { } },
    yield => sub { while ($state != 7) { threads->yield } },
    sleep => sub { while ($state != 7) { usleep(1000) } },
    table => sub { while ($table{ready} != 7) { threads->yield } },
    cells => sub { while ($cells[5] != 7) { select(undef, undef, undef, 0.001) } },
    plain => sub { while ($plain != 7) { } },
    file => sub { while (!-e "/tmp/never") { } },
    child => sub { while (waitpid($child, WNOHANG) == 0) { usleep(200) } },
    socket => sub { while (!sysread($ours, my $byte, 1)) { threads->yield } },
    lock => sub { lock($lock) },
    queue => sub { $queue->dequeue },
    join => sub { $writer->join },
);
$waits{$how}->();
