# SPDX-License-Identifier: MIT
use Socket;
my $to = sockaddr_in(9, inet_aton("127.0.0.1"));
my $tries = 0;
while (1) {
    socket(my $s, PF_INET, SOCK_STREAM, getprotobyname("tcp")) or die;
    last if connect($s, $to);
    close $s;
    $tries++;
}
