# SPDX-License-Identifier: MIT
use strict;
use warnings;
use POSIX ();
use Scalar::Util 'refaddr';
use lib $ENV{PYTHONPATH};
use LabTruth;

my $caught = 0;
local $SIG{USR1} = sub { $caught = 1 };
my $child = fork;
if ($child == 0) {
    kill STOP => $$;
    kill USR1 => getppid;
    POSIX::_exit(0);
}
select undef, undef, undef, 0.3;
role('waiter');
truth("role child $child");
# A plain number lies in its scalar's head.
truth(sprintf 'word caught 0x%x 8', refaddr(\$caught) + 16);
truth('ready');
until ($caught) {
    select undef, undef, undef, 0.001;
}
sleep 5;
