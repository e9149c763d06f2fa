# SPDX-License-Identifier: MIT
use Fcntl;
pipe(my $from, my $to);
fcntl($from, F_SETFL, O_NONBLOCK);
my $tries = 0;
until (defined sysread($from, my $bytes, 100)) { $tries++ }
