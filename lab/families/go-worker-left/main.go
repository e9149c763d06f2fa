// SPDX-License-Identifier: MIT
package main

// one worker returns before wg.Done on an error path
import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

func fetch(n int) error {
	time.Sleep(time.Duration(20*n) * time.Millisecond)
	if n == 3 {
		return errors.New("404")
	}
	return nil
}

func worker(n int, wg *sync.WaitGroup) {
	if err := fetch(n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	wg.Done()
}

func main() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go http.Serve(l, nil)
	go func() {
		for range time.Tick(100 * time.Millisecond) {
		}
	}()
	var wg sync.WaitGroup
	wg.Add(5)
	for i := 0; i < 5; i++ {
		go worker(i, &wg)
	}
	wg.Wait()
}
