// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"runtime"
)

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	total := 0
	for round := 0; total >= 0; round++ {
		counts := map[string]int{}
		for word := range 1000 {
			counts[fmt.Sprint("word ", word*round%311)]++
		}
		total += len(counts)
	}
}
