// SPDX-License-Identifier: MIT

// A goroutine sorts under the lock that each request takes.
package main

import (
	"math/rand"
	"runtime"
	"sort"
	"sync"
	"time"
)

func main() {
	var store sync.RWMutex
	numbers := []int{}
	requests, answers := make(chan int), make(chan int)
	go func() {
		runtime.LockOSThread()
		role("handler")
		for one := range requests {
			store.RLock()
			answers <- one + len(numbers)
			store.RUnlock()
		}
	}()
	go func() {
		runtime.LockOSThread()
		role("sorter")
		found := rand.Perm(2000000)
		store.Lock()
		numbers = found
		sort.Ints(numbers)
		store.Unlock()
	}()
	runtime.LockOSThread()
	for i := 0; i < 80; i++ {
		requests <- i
		<-answers
		time.Sleep(10 * time.Millisecond)
	}
	truth("ready")
}
