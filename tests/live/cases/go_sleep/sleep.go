// sleep: a goroutine sleeps for a millisecond until a worker's field says that it is ready; another one reads stdin and says so.
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

//go:noinline
func (w *worker) wait() (n int) {
	for !w.ready.Load() {
		n++
		time.Sleep(time.Millisecond)
	}
	return
}

func main() {
	workers := make([]*worker, 4)
	for i := range workers {
		workers[i] = &worker{name: fmt.Sprint("worker ", i)}
	}
	w := workers[2]
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
		n += w.wait()
		w.ready.Store(false)
	}
	fmt.Println("finished", n > 0)
}
