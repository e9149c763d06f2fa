package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

func ask(out chan<- string, wg *sync.WaitGroup) {
	defer wg.Done()
	time.Sleep(150 * time.Millisecond)
	out <- "late"
}

func first(out <-chan string) string {
	select {
	case s := <-out:
		return s
	case <-time.After(50 * time.Millisecond):
		return "timeout"
	}
}

func main() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go l.Accept()
	var wg sync.WaitGroup
	wg.Add(1)
	out := make(chan string)
	go ask(out, &wg)
	fmt.Println(first(out))
	wg.Wait()
}
