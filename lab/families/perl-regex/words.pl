# SPDX-License-Identifier: MIT
use strict;
use warnings;
use lib $ENV{PYTHONPATH};
use LabTruth;

role('waiter');
truth('ready');
my $text = 'x' x 50;
print "fine\n" if $text =~ /^(.+)(.+)(.+)(.+)(.+)(.+)(.+)(.+)(.+)\9\8\7\6\5\4\3\2\1[yz]/;
