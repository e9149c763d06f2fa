// SPDX-License-Identifier: MIT
// sleep: a goroutine sleeps for a millisecond, again and again, until a worker of a pool is ready;
// another one reads stdin and makes it so.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

type worker struct {
	name  string
	ready atomic.Bool
}

type pool struct {
	workers []*worker
}

//go:noinline
func (p *pool) wait(number int) (n int) {
	for !p.workers[number].ready.Load() {
		n++
		time.Sleep(time.Millisecond)
	}
	return
}

func main() {
	p := &pool{}
	for i := 0; i < 4; i++ {
		p.workers = append(p.workers, &worker{name: fmt.Sprint("worker ", i)})
	}
	w := p.workers[2]
	fmt.Fprintf(os.Stderr, "FLAG address=%p size=4\n", &w.ready)
	over := false
	go func() {
		b := make([]byte, 1)
		for !over {
			k, _ := os.Stdin.Read(b)
			over = k != 1 || b[0] == 'q'
			w.ready.Store(true)
		}
	}()
	n := 0
	for !over {
		n += p.wait(2)
		w.ready.Store(false)
	}
	fmt.Println("finished", n > 0)
}
