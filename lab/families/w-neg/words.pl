use strict; use warnings;
my (%count, $x); $x = 1; my $rounds = 0;
while (1) {
    my $text = '';
    for (1 .. 500) { $x = ($x * 1103515245 + 12345) % 2147483648; $text .= chr(97 + $x % 7) . ($x % 11 ? '' : ' '); }
    $count{$_}++ for split / /, $text;
    (my $copy = $text) =~ s/a(\w)/$1a/g;
    my @sorted = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    %count = map { $_ => $count{$_} } @sorted[0 .. ($#sorted < 200 ? $#sorted : 200)];
    $rounds++;
}
