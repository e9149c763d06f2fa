// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

var answered atomic.Int64

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, answered.Add(1))
	}))
	for range 4 {
		go func() {
			for range 2_000_000 {
				answer, err := http.Get("http://" + listener.Addr().String())
				if err == nil {
					io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			}
		}()
	}
	time.Sleep(300 * time.Millisecond)
	truth("ready")
	select {}
}
