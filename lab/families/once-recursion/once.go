// SPDX-License-Identifier: MIT
package main

import (
	"net"
	"runtime"
	"sync"
)

var once sync.Once
var table [16]int

func fill() {
	for index := 1; index < 16; index++ {
		table[index] = lookUp(index-1) + 1
	}
}

func lookUp(index int) int {
	once.Do(fill)
	return table[index]
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go listener.Accept() // so that Go does not see the deadlock itself
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	println(lookUp(3))
}
