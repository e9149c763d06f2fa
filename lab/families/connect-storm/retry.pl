# SPDX-License-Identifier: MIT
use strict;
use warnings;
use Socket;
use lib $ENV{PYTHONPATH};
use LabTruth;

socket my $listener, PF_INET, SOCK_STREAM, 0 or die $!;
bind $listener, sockaddr_in(0, INADDR_LOOPBACK) or die $!;
my ($port) = sockaddr_in(getsockname $listener);
close $listener;
role('waiter');
truth('ready');
while (1) {
    socket my $client, PF_INET, SOCK_STREAM, 0 or die $!;
    last if connect $client, sockaddr_in($port, INADDR_LOOPBACK);
}
