// A goroutine looks at a word under a mutex and sleeps; the one that sets it waits on a channel.
package main

import ("sync"; "time"; "unsafe")

type job struct { mu sync.Mutex; id int; finished bool }
func main() {
	j := &job{id: 7}; c := make(chan int)
	go func() { n := <-c; j.mu.Lock(); j.id += n; j.finished = true; j.mu.Unlock() }()
	go func() { for range time.Tick(2 * time.Millisecond) { j.mu.Lock(); j.id++; j.mu.Unlock() } }()
	truth("word finished 0x%x 1", uintptr(unsafe.Pointer(&j.finished)))
	role("waiter0"); truth("ready")
	for { j.mu.Lock(); f := j.finished; j.mu.Unlock(); if f { break }; time.Sleep(100 * time.Microsecond) }
	c <- 1
}
