proc depth {cr ci} { set zr 0.0; set zi 0.0; for {set n 0} {$n < 100} {incr n} { set t [expr {$zr*$zr-$zi*$zi+$cr}]; set zi [expr {2*$zr*$zi+$ci}]; set zr $t; if {$zr*$zr+$zi*$zi > 4.0} break }; return $n }
set total 0
while 1 { for {set y 0} {$y < 40} {incr y} { for {set x 0} {$x < 60} {incr x} { incr total [depth [expr {$x/20.0-2.1}] [expr {$y/20.0-1.0}]] } } }
