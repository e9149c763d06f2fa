# SPDX-License-Identifier: MIT
set file [open $env(LAB_TRUTH) a]
puts $file ready
close $file
proc primes {} {
    set found {}
    for {set number 2} {1} {incr number} {
        set prime 1
        foreach one [lrange $found 0 200] {
            if {$number % $one == 0} { set prime 0; break }
        }
        if {$prime} { lappend found $number }
        if {[llength $found] > 100000} { set found {} }
    }
}
primes
