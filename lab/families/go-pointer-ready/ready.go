// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

type settings struct{ limit int }

var current atomic.Pointer[settings]

func load(path string) {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_SH); err != nil {
		panic(err)
	}
	current.Store(&settings{limit: 3})
}

func main() {
	path := os.Getenv("LAB_RUN") + "/settings"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		panic(err)
	}
	holder := exec.Command("sh", "-c", "exec 9< $0; flock 9; exec sleep 100000", path)
	if err := holder.Start(); err != nil {
		panic(err)
	}
	time.Sleep(300 * time.Millisecond)
	go load(path)
	time.Sleep(200 * time.Millisecond)
	runtime.LockOSThread()
	role("waiter")
	truth("word pointer %p 8", unsafe.Pointer(&current))
	truth("role holder %d", holder.Process.Pid)
	truth("ready")
	var found *settings
	for found == nil {
		found = current.Load()
		time.Sleep(100 * time.Microsecond)
	}
	fmt.Println(found.limit)
}
