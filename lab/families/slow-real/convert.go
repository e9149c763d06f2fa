// SPDX-License-Identifier: MIT

// One request runs a program under the lock that each request takes.
package main

import (
	"os/exec"
	"runtime"
	"sync"
	"time"
)

func main() {
	var state sync.Mutex
	requests, answers := make(chan int), make(chan int)
	for n := 0; n < 3; n++ {
		go func() {
			for one := range requests {
				state.Lock()
				time.Sleep(time.Millisecond)
				state.Unlock()
				answers <- one
			}
		}()
	}
	go func() {
		time.Sleep(500 * time.Millisecond)
		state.Lock()
		child := exec.Command("sleep", "0.8")
		child.Start()
		truth("role child %d %d", child.Process.Pid, child.Process.Pid)
		child.Wait()
		state.Unlock()
	}()
	runtime.LockOSThread()
	role("service")
	for i := 0; i < 90; i++ {
		requests <- i
		<-answers
		time.Sleep(10 * time.Millisecond)
	}
	truth("ready")
}
