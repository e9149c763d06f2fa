// SPDX-License-Identifier: MIT
// A goroutine sends on a channel that nobody reads, and the first one waits for it.
package main

import (
	"fmt"
	"sync"
	"time"
)

func sends(results chan int, done *sync.WaitGroup) {
	defer done.Done()
	results <- 1
}

func beats() {
	for {
		time.Sleep(time.Second)
	}
}

func main() {
	results := make(chan int)
	var done sync.WaitGroup
	done.Add(1)
	go beats()
	go sends(results, &done)
	fmt.Println("STARTED")
	done.Wait()
}
