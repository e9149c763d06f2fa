# A thread of Perl sleeps until a shared variable becomes 7; each line on stdin makes it 3.
use strict; use threads; use threads::shared;
my %job :shared; $job{state} = 0;
my $t = async { while (<STDIN>) { $job{state} = 3 } };
select undef, undef, undef, 0.0005 while $job{state} != 7;
