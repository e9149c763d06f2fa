// SPDX-License-Identifier: MIT
// A goroutine reads commands from a pipe and publishes the newest version; main waits for version
// 3. In spin mode the third command never arrives.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

var version atomic.Uint32

//go:noinline
func waitForVersion(wanted uint32) (rounds int) {
	for version.Load() < wanted {
		rounds++
		runtime.Gosched()
	}
	return rounds
}

func follow(commands *os.File) {
	buffer := make([]byte, 8)
	for {
		if _, err := commands.Read(buffer); err != nil {
			return
		}
		version.Add(1)
	}
}

func main() {
	commands := 3
	if len(os.Args) > 1 && os.Args[1] == "spin" {
		commands = 2
	}
	fmt.Fprintf(os.Stderr, "FLAG address=%#x size=%d\n", uintptr(unsafe.Pointer(&version)),
		unsafe.Sizeof(version))
	reader, writer, err := os.Pipe()
	if err != nil {
		os.Exit(1)
	}
	go follow(reader)
	go func() {
		for i := 0; i < commands; i++ {
			time.Sleep(80 * time.Millisecond)
			writer.WriteString("release")
		}
	}()
	fmt.Println("waited", waitForVersion(3) > 0)
}
