// SPDX-License-Identifier: MIT

// Hangs of small services: `service HANG` says that it begins, and stands a moment later.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

type client struct {
	name string
	out  chan string
}

type hub struct {
	mu      sync.Mutex
	clients map[string]*client
	sent    int
}

func (h *hub) join(name string) *client {
	one := &client{name: name, out: make(chan string, 4)}
	h.mu.Lock()
	h.clients[name] = one
	h.mu.Unlock()
	return one
}

func (h *hub) leave(one *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, one.name)
}

func (h *hub) broadcast(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.clients {
		one.out <- text
		h.sent++
	}
}

func (one *client) read(h *hub, most int) {
	for range most {
		<-one.out
	}
	h.leave(one)
}

// The hub sends to a client that is about to leave: each has what the other waits for.
func hubFull() {
	rooms := []*hub{}
	for range 6 {
		rooms = append(rooms, &hub{clients: map[string]*client{}})
	}
	busy := rooms[3]
	for n := range 6 {
		go busy.join(fmt.Sprint("idle", n)).drain()
	}
	slow := busy.join("slow")
	for _, other := range []int{2, 4} {
		go rooms[other].join("there").drain()
	}
	time.Sleep(100 * time.Millisecond)
	go func() {
		time.Sleep(200 * time.Millisecond)
		slow.read(busy, 0)
	}()
	go func() {
		for n := 0; ; n++ {
			busy.broadcast(fmt.Sprint("message ", n))
			time.Sleep(time.Millisecond)
		}
	}()
	serve()
}

func (one *client) drain() {
	for range one.out {
	}
}

type pool struct{ slots chan struct{} }

func (p *pool) acquire() { p.slots <- struct{}{} }
func (p *pool) release() { <-p.slots }

func (p *pool) readJob(from *bufio.Reader) {
	p.acquire()
	defer p.release()
	line, err := from.ReadString('\n')
	fmt.Println(line, err)
}

// All slots of a semaphore are taken by those that read a silent pipe.
func slots() {
	jobs := &pool{slots: make(chan struct{}, 1)}
	other := &pool{slots: make(chan struct{}, 1)}
	go other.readJob(bufio.NewReader(silent()))
	go jobs.readJob(bufio.NewReader(os.Stdin))
	go serve()
	time.Sleep(200 * time.Millisecond)
	jobs.acquire()
	fmt.Println("a slot")
	jobs.release()
}

func silent() net.Conn {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	conn, _ := net.Dial("tcp", listener.Addr().String())
	return conn
}

func refresh(ctx context.Context, group *sync.WaitGroup) {
	defer group.Done()
	ticks := make(chan int)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// main waits for one that waits for a context, and forgot to cancel that.
func uncancelled() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Add(2)
	go refresh(ctx, &group)
	go func() {
		defer group.Done()
		time.Sleep(50 * time.Millisecond)
	}()
	go serve()
	group.Wait()
	cancel()
}

type request struct {
	key   string
	reply chan string
}

func keeper(requests chan request, lines *bufio.Reader) {
	for one := range requests {
		line, _ := lines.ReadString('\n')
		one.reply <- line
	}
}

func ask(requests chan request, group *sync.WaitGroup) {
	defer group.Done()
	reply := make(chan string)
	requests <- request{"a", reply}
	fmt.Println(<-reply)
}

// A request that is being handled: its handler reads a silent pipe.
func reply() {
	requests := make(chan request)
	others := make(chan request)
	go keeper(others, bufio.NewReader(silent()))
	go keeper(requests, bufio.NewReader(os.Stdin))
	var group sync.WaitGroup
	group.Add(1)
	go ask(requests, &group)
	go serve()
	group.Wait()
}

func fetch(n int, results chan<- int, group *sync.WaitGroup) {
	defer group.Done()
	time.Sleep(time.Duration(n) * 10 * time.Millisecond)
	results <- n
}

// The collector returned at the first error: nobody receives the other results.
func collector() {
	results := make(chan int)
	var group sync.WaitGroup
	for n := range 3 {
		group.Add(1)
		go fetch(n, results, &group)
	}
	go serve()
	if err := collect(results); err != nil {
		fmt.Println(err)
	}
	group.Wait()
}

func collect(results <-chan int) error {
	for n := range results {
		if n == 0 {
			return fmt.Errorf("result %d", n)
		}
	}
	return nil
}

type table struct {
	sync.RWMutex
	rows map[string]string
}

func (t *table) export() {
	t.RLock()
	defer t.RUnlock()
	exec.Command("sleep", "3600").Run()
}

func (t *table) put(key string) {
	t.Lock()
	t.rows[key] = key
	t.Unlock()
}

func (t *table) get(key string) string {
	t.RLock()
	defer t.RUnlock()
	return t.rows[key]
}

// A reader waits behind a writer, who waits for a reader whose child does not end.
func readers() {
	rows := &table{rows: map[string]string{}}
	other := &table{rows: map[string]string{}}
	other.put("a")
	go rows.export()
	go serve()
	time.Sleep(200 * time.Millisecond)
	go rows.put("b")
	time.Sleep(200 * time.Millisecond)
	fmt.Println(rows.get("b"), other.get("a"))
}

func serve() {
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() {
		for range time.Tick(300 * time.Millisecond) {
		}
	}()
	http.Serve(listener, nil)
}

func main() {
	fmt.Println("begins")
	map[string]func(){
		"hub": hubFull, "slots": slots, "uncancelled": uncancelled, "reply": reply,
		"collector": collector, "readers": readers,
	}[os.Args[1]]()
}
