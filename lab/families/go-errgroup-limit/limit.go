// SPDX-License-Identifier: MIT
package main

import (
	"net"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	// A server that has no client, so that Go does not see the deadlock itself.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go listener.Accept()
	var group errgroup.Group
	group.SetLimit(2)
	for range 2 {
		group.Go(func() error {
			time.Sleep(50 * time.Millisecond)
			group.Go(func() error { return nil })
			return nil
		})
	}
	time.Sleep(200 * time.Millisecond)
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	group.Wait()
}
