// SPDX-License-Identifier: MIT

// Batches of events are sent when they are full or late. `batches silent`: who brings events wants
// a lock, whose owner asks a server that does not answer.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

type source struct {
	mu     sync.RWMutex
	limits map[string]int
	server net.Conn
}

func (s *source) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := make([]byte, 8)
	if _, err := io.ReadFull(s.server, answer); err == nil {
		s.limits["all"] = len(answer)
	}
}

func (s *source) limit(name string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.limits[name]
}

func produce(s *source, events chan<- int) {
	for id := 0; id < 3; id++ {
		if s.limit("all") >= 0 {
			events <- id
		}
	}
}

func batch(events <-chan int, batches chan<- []int) {
	var all []int
	for {
		select {
		case id := <-events:
			if all = append(all, id); len(all) == 3 {
				batches <- all
				all = nil
			}
		case <-time.After(time.Second):
			if len(all) > 0 {
				batches <- all
				all = nil
			}
		}
	}
}

func main() {
	silent := len(os.Args) > 1 && os.Args[1] == "silent"
	here, there := net.Pipe()
	if !silent {
		go func() { there.Write([]byte("12345678")) }()
	}
	one := &source{limits: map[string]int{}, server: here}
	go one.refresh()
	time.Sleep(200 * time.Millisecond)
	events, batches := make(chan int), make(chan []int)
	go batch(events, batches)
	go produce(one, events)
	fmt.Println("begins")
	fmt.Println(<-batches)
	time.Sleep(time.Hour)
	there.Close()
}
