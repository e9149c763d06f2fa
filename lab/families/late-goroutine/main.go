// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

func work(n int) (s int) {
	e := time.Now().Add(time.Duration(n) * time.Millisecond)
	for time.Now().Before(e) {
		s++
	}
	return
}
func main() {
	runtime.LockOSThread()
	fmt.Println(os.Getpid())
	var mu sync.Mutex
	req := make(chan int)
	rep := make(chan int)
	go func() {
		for r := range req {
			n := 2
			if r == 15 {
				n = 600
			}
			mu.Lock()
			work(n)
			mu.Unlock()
			rep <- r
		}
	}()
	go func() {
		for {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for i := 0; i < 20; i++ {
		req <- i
		<-rep
		time.Sleep(5 * time.Millisecond)
	}
}
