// SPDX-License-Identifier: MIT
package main

import "runtime"

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	cells := make([]float64, 40000)
	sums := map[int]float64{}
	for round := 0; ; round++ {
		sum := 0.0
		for cell := range cells {
			cells[cell] = cells[cell*7%40000]*0.5 + float64(round)
			sum += cells[cell]
		}
		sums[round%1000] += sum
	}
}
