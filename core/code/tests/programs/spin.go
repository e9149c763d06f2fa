// SPDX-License-Identifier: MIT
// Prints where a function lies ("name address"), then waits to be killed.
package main

import (
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

var ready int32

//go:noinline
func waitReady() {
	for atomic.LoadInt32(&ready) == 0 {
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

func main() {
	time.AfterFunc(30*time.Second, func() { panic("not killed in time") })
	fmt.Printf("function %#x\n", reflect.ValueOf(waitReady).Pointer())
	fmt.Println("ready 0")
	waitReady()
}
