// SPDX-License-Identifier: MIT

// Hangs of a backend: `backend HANG` says that it begins, and stands a moment later.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

type call struct {
	done  sync.WaitGroup
	value string
}

type flights struct {
	mu    sync.Mutex
	calls map[string]*call
}

func (f *flights) do(key string, load func() string) string {
	f.mu.Lock()
	if one, there := f.calls[key]; there {
		f.mu.Unlock()
		one.done.Wait()
		return one.value
	}
	one := &call{}
	one.done.Add(1)
	f.calls[key] = one
	f.mu.Unlock()
	one.value = load()
	one.done.Done()
	return one.value
}

func load() string {
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return line
}

// Those who ask for the same key wait for the first one, who reads.
func flight() {
	all := &flights{calls: map[string]*call{}}
	go all.do("a", load)
	time.Sleep(100 * time.Millisecond)
	go all.do("a", load)
	fmt.Println(all.do("a", load))
}

type event struct {
	text string
	ack  chan error
}

type bus struct {
	mu     sync.Mutex
	events chan event
	seen   map[string]int
}

func (b *bus) publish(text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := event{text, make(chan error)}
	b.events <- one
	return <-one.ack
}

func (b *bus) consume() {
	for one := range b.events {
		one.ack <- b.note(one.text)
	}
}

func (b *bus) note(text string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[text]++; b.seen[text] > 1 {
		return errors.New("seen")
	}
	return nil
}

// Who publishes waits for an answer under the lock that the answer needs.
func acked() {
	one := &bus{events: make(chan event), seen: map[string]int{}}
	other := &bus{events: make(chan event), seen: map[string]int{}}
	go other.consume()
	go one.consume()
	fmt.Println(one.publish("a"))
}

func main() {
	fmt.Println("begins")
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go listener.Accept()
	go func() {
		for {
			time.Sleep(300 * time.Millisecond)
		}
	}()
	map[string]func(){"flight": flight, "acked": acked}[os.Args[1]]()
}
