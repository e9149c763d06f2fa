// SPDX-License-Identifier: MIT

// Sessions of a printer pool, with a sync.Cond for those who wait. `printers silent`: who has the
// printers waits for their answer.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

type printer struct {
	id   int
	port io.ReadWriter
}

type pool struct {
	mu    sync.Mutex
	freed *sync.Cond
	free  []*printer
}

func newPool(all ...*printer) *pool {
	one := &pool{free: all}
	one.freed = sync.NewCond(&one.mu)
	return one
}

func (p *pool) acquire() *printer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.free) == 0 {
		p.freed.Wait()
	}
	last := len(p.free) - 1
	one := p.free[last]
	p.free = p.free[:last]
	return one
}

func (p *pool) release(one *printer) {
	p.mu.Lock()
	p.free = append(p.free, one)
	p.mu.Unlock()
	p.freed.Signal()
}

func (p *printer) status() (string, error) {
	answer := make([]byte, 32)
	n, err := p.port.Read(answer)
	if n == 0 && err == nil {
		err = errors.New("nothing")
	}
	return string(answer[:n]), err
}

func (p *pool) print(document string) error {
	one := p.acquire()
	defer p.release(one)
	state, err := one.status()
	if err != nil {
		return fmt.Errorf("printer %d: %w", one.id, err)
	}
	fmt.Println(document, "printed:", state)
	return nil
}

type port struct {
	io.Reader
	io.Writer
}

func main() {
	silent := len(os.Args) > 1 && os.Args[1] == "silent"
	var all []*printer
	for id := range 2 {
		from, to, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		if !silent {
			go func() {
				for {
					to.WriteString("ready")
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		all = append(all, &printer{id, port{from, to}})
	}
	printers := newPool(all...)
	var jobs sync.WaitGroup
	for id := range 5 {
		jobs.Add(1)
		go func() {
			defer jobs.Done()
			printers.print(fmt.Sprint("letter ", id))
		}()
	}
	fmt.Println("begins")
	jobs.Wait()
	select {}
}
