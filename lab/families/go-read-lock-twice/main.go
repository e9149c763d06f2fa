// SPDX-License-Identifier: MIT
package main

// a reader takes the read lock a second time while a writer waits in between
import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"
)

type store struct {
	mu   sync.RWMutex
	rows map[string]int
}

func (s *store) get(k string) int { s.mu.RLock(); defer s.mu.RUnlock(); return s.rows[k] }
func (s *store) sum() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := 0
	for k := range s.rows {
		time.Sleep(50 * time.Millisecond)
		n += s.get(k)
	}
	return n
}
func (s *store) put(k string, v int) { s.mu.Lock(); defer s.mu.Unlock(); s.rows[k] = v }

func main() {
	s := &store{rows: map[string]int{"a": 1, "b": 2}}
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	go func() { <-c; os.Exit(1) }()
	go func() { time.Sleep(70 * time.Millisecond); s.put("c", 3) }()
	fmt.Println(s.sum())
}
