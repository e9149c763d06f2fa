# a filter is fed all of its input before its output is read
use IPC::Open2; my $pid = open2(my $out, my $in, 'cat'); my $line = ('x' x 99)."\n";
sub feed { print {$in} $line for 1..5000; close $in; } sub drain { my $n=0; $n += length while <$out>; $n }
feed(); print drain(), "\n"; waitpid $pid, 0;
