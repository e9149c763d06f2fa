# SPDX-License-Identifier: MIT
proc truth {line} {
    set file [open $::env(LAB_TRUTH) a]
    puts $file $line
    close $file
}
set pipe [open "|sleep 100000" r]
fconfigure $pipe -blocking 0
fileevent $pipe readable {
    if {[gets $pipe line] < 0 && [eof $pipe]} { set done 1 }
}
truth "role sleeper [pid $pipe]"
truth "role waiter [pid]"
after 300 {truth ready}
vwait done
