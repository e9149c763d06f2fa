// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

type ring struct {
	head  atomic.Uint64
	_     [56]byte
	tail  atomic.Uint64
	_     [56]byte
	slots [64]int
}

func (r *ring) take() int {
	head := r.head.Load()
	for r.tail.Load() == head {
		runtime.Gosched()
	}
	value := r.slots[head%64]
	r.head.Store(head + 1)
	return value
}

func (r *ring) put(value int) {
	tail := r.tail.Load()
	for tail-r.head.Load() == 64 {
		runtime.Gosched()
	}
	r.slots[tail%64] = value
	r.tail.Store(tail + 1)
}

func fill(r *ring, listener net.Listener) {
	for number := range 100 {
		r.put(number)
	}
	client, err := listener.Accept()
	fmt.Println(client, err)
	r.put(100)
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	r := new(ring)
	go fill(r, listener)
	sum := 0
	for range 100 {
		sum += r.take()
	}
	time.Sleep(100 * time.Millisecond)
	runtime.LockOSThread()
	role("waiter")
	truth("word tail %p 8", unsafe.Pointer(&r.tail))
	truth("word head %p 8", unsafe.Pointer(&r.head))
	truth("ready")
	sum += r.take()
	runtime.UnlockOSThread()
	time.Sleep(5 * time.Second)
	fmt.Println(sum)
}
