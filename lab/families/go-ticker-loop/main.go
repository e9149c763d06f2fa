// SPDX-License-Identifier: MIT

// A metrics agent flushes at each tick until it is told to stop. `agent silent`: who is to tell it
// waits for the collector's goodbye.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

type agent struct {
	mu     sync.Mutex
	points []float64
	stop   chan struct{}
	group  sync.WaitGroup
}

func (a *agent) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.points = a.points[:0]
}

func (a *agent) loop(every time.Duration) {
	defer a.group.Done()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.flush()
		case <-a.stop:
			return
		}
	}
}

func (a *agent) goodbye(collector net.Conn) error {
	if _, err := fmt.Fprintln(collector, "BYE"); err != nil {
		return err
	}
	_, err := bufio.NewReader(collector).ReadString('\n')
	return err
}

func (a *agent) shutdown(collector net.Conn) {
	if err := a.goodbye(collector); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	close(a.stop)
}

func collect(listener net.Listener, answers bool) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			lines := bufio.NewScanner(client)
			for lines.Scan() {
				if answers {
					fmt.Fprintln(client, "OK")
				}
			}
		}()
	}
}

func main() {
	silent := len(os.Args) > 1 && os.Args[1] == "silent"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go collect(listener, !silent)
	collector, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	one := &agent{stop: make(chan struct{})}
	one.group.Add(1)
	go one.loop(250 * time.Millisecond)
	fmt.Println("begins")
	if silent {
		go one.shutdown(collector)
	} else {
		context.AfterFunc(context.Background(), func() { one.shutdown(collector) })
	}
	one.group.Wait()
}
