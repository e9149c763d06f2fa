// SPDX-License-Identifier: MIT

// A goroutine with a thread of its own has the lock while it computes.
package main

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"time"
)

func main() {
	var index sync.Mutex
	go func() {
		runtime.LockOSThread()
		role("builder")
		time.Sleep(500 * time.Millisecond)
		index.Lock()
		block := make([]byte, 1<<20)
		for begin := time.Now(); time.Since(begin) < 900*time.Millisecond; {
			sha256.Sum256(block)
		}
		index.Unlock()
	}()
	runtime.LockOSThread()
	role("service")
	for i := 0; i < 120; i++ {
		index.Lock()
		time.Sleep(time.Millisecond)
		index.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	truth("ready")
}
