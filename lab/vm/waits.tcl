# SPDX-License-Identifier: MIT
# Waits for what another thread writes. Each line on stdin makes that write 3.
package require Thread
tsv::set state ready 0
set writer [thread::create {
    while {[gets stdin line] >= 0} { tsv::set state ready 3 }
}]
switch [lindex $argv 0] {
    shared { while {[tsv::get state ready] != 7} {} }
    after { while {[tsv::get state ready] != 7} { after 1 } }
    file { while {![file exists /tmp/never]} {} }
    file-after { while {![file exists /tmp/never]} { after 1 } }
}
