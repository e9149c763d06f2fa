// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"net"
	"runtime"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	address := listener.Addr().String()
	listener.Close()
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	for {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			fmt.Println(connection)
			return
		}
	}
}
