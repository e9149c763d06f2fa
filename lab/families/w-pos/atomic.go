// A goroutine spins on a pointer; the one that publishes it reads a silent input. Another computes.
package main

import ("os"; "runtime"; "sync/atomic"; "unsafe")

type config struct{ port int }
type server struct { name string; current atomic.Pointer[config]; requests uint64 }
func main() {
	s := &server{name: "a"}
	go func() { b := make([]byte, 1); if n, _ := os.Stdin.Read(b); n == 1 { s.current.Store(&config{int(b[0])}) } }()
	go func() { x := uint64(1); for { x = x*6364136223846793005 + 1; if x>>50 == 3 { s.requests++ } } }()
	runtime.LockOSThread()
	role("waiter"); truth("word current 0x%x 8", uintptr(unsafe.Pointer(&s.current))); truth("ready")
	for s.current.Load() == nil { }
	println(s.current.Load().port)
}
