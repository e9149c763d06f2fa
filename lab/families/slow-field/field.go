// SPDX-License-Identifier: MIT

// One goroutine has the lock of all while it reads from a pipe whose writer is slow.
package main

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

func main() {
	var cache sync.RWMutex
	go func() {
		time.Sleep(500 * time.Millisecond)
		feed := exec.Command("sh", "-c", "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; echo $n")
		out, _ := feed.StdoutPipe()
		cache.Lock()
		feed.Start()
		truth("role feed %d %d", feed.Process.Pid, feed.Process.Pid)
		out.Read(make([]byte, 99))
		cache.Unlock()
		feed.Wait()
	}()
	runtime.LockOSThread()
	role("service")
	for i := 0; i < 120; i++ {
		cache.RLock()
		time.Sleep(time.Millisecond)
		cache.RUnlock()
		time.Sleep(10 * time.Millisecond)
	}
	truth("ready")
	os.Exit(0)
}
