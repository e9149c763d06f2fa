use Fcntl ':flock'; my ($lock,$fifo)=@ARGV; open my $l,'>>',$lock or die; flock $l,LOCK_EX; open my $f,'>',$fifo or die; print $f "dump\n"; close $f; flock $l,LOCK_UN;
