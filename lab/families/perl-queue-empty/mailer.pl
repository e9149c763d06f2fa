# SPDX-License-Identifier: MIT
# Mails are rendered by a thread and sent by the first one. The renderer has a template twice at
# hand and locks it again by way of another name, so the sender waits for a mail for good.
use strict;
use warnings;
use threads;
use threads::shared;
use Thread::Queue;
use Thread::Semaphore;
use lib $ENV{PYTHONPATH};
use LabTruth;

my $rendered = Thread::Queue->new;
my $template = Thread::Semaphore->new(1);

sub header {
    my ($name) = @_;
    $template->down;    # the caller has it
    my $text = "Dear $name,";
    $template->up;
    return $text;
}

sub render {
    my ($name) = @_;
    $template->down;
    my $text = header($name) . "\nyour order is on its way.\n";
    $template->up;
    return $text;
}

sub renderer {
    role('renderer');
    truth('ready');
    $rendered->enqueue(render($_)) for @_;
    return;
}

sub send_next {
    my $mail = $rendered->dequeue;
    print $mail;
    return;
}

role('waiter');
my $thread = threads->create(\&renderer, 'Ada', 'Grace');
send_next() for 1 .. 2;
$thread->join;
