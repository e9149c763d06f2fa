// SPDX-License-Identifier: MIT
// Goroutines that owe each other, by the kind of what they wait for.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"
)

type account struct {
	owner string
	lock  sync.Mutex
	sum   int
}

func (from *account) move(to *account, done *sync.WaitGroup) {
	defer done.Done()
	from.lock.Lock()
	defer from.lock.Unlock()
	time.Sleep(100 * time.Millisecond)
	to.lock.Lock()
	defer to.lock.Unlock()
	to.sum++
}

// Each has one lock and wants that of the other.
func locks() {
	var done sync.WaitGroup
	one, other := &account{owner: "one"}, &account{owner: "other"}
	done.Add(2)
	go one.move(other, &done)
	go other.move(one, &done)
	done.Wait()
}

var results = make(chan int)

func produces(done *sync.WaitGroup) {
	defer done.Done()
	results <- 1
}

// The first one reads the results once all are done.
func room() {
	var done sync.WaitGroup
	done.Add(1)
	go produces(&done)
	done.Wait()
	fmt.Println(<-results)
}

func (one *account) spend() int {
	one.lock.Lock()
	if one.sum == 0 {
		return 0 // it leaves the lock locked
	}
	defer one.lock.Unlock()
	return one.sum
}

func left() {
	one, spent := &account{}, make(chan int)
	go func() { spent <- one.spend() + one.spend() }()
	fmt.Println(<-spent)
}

type queue struct {
	lock  sync.Mutex
	grows *sync.Cond
	all   []byte
}

func (items *queue) take() byte {
	items.lock.Lock()
	defer items.lock.Unlock()
	for len(items.all) == 0 {
		items.grows.Wait()
	}
	return items.all[0]
}

func (items *queue) put(from net.Conn) {
	var item [1]byte
	from.Read(item[:])
	items.lock.Lock()
	items.all = append(items.all, item[0])
	items.grows.Signal()
	items.lock.Unlock()
}

// One that waits for a peer is to signal the condition.
func condition() {
	items := &queue{}
	items.grows = sync.NewCond(&items.lock)
	connection, err := net.Dial("tcp", os.Args[2])
	if err != nil {
		panic(err)
	}
	go items.put(connection)
	fmt.Println(items.take())
}

func waits(ended chan error) { ended <- exec.Command("sleep", "1000").Run() }

func child() {
	ended := make(chan error)
	go waits(ended)
	fmt.Println(<-ended)
}

// A server's first goroutine waits for clients; two of the others are in a circle.
func server() {
	go locks()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	listener.Accept()
}

func (one *account) reads() {
	one.lock.Lock()
	defer one.lock.Unlock()
	exec.Command("sleep", "1000").Run()
}

func (one *account) serves(jobs chan int) {
	for sum := range jobs {
		one.lock.Lock()
		one.sum += sum
		one.lock.Unlock()
	}
}

// One has the lock; another takes it and gives it back in each round.
func rounds() {
	one, jobs := &account{owner: "one"}, make(chan int)
	go one.serves(jobs)
	go one.reads()
	time.Sleep(100 * time.Millisecond)
	one.lock.Lock()
	fmt.Println(one.sum)
	jobs <- one.sum
}

type slots struct{ free chan bool }

func (some *slots) use() {
	some.free <- true
	exec.Command("sleep", "1000").Run()
	<-some.free
}

func (some *slots) serves(jobs chan int) {
	for range jobs {
		some.free <- true
		<-some.free
	}
}

// Objects of one size lie side by side; only one of them is that of the one that waits.
func neighbours() {
	var all [8]*slots
	jobs := make(chan int)
	for which := range all {
		all[which] = &slots{make(chan bool, 1)}
	}
	wanted := all[4]
	go wanted.use()
	for _, other := range all {
		if other != wanted {
			go other.serves(jobs)
		}
	}
	time.Sleep(100 * time.Millisecond)
	wanted.free <- true
	jobs <- 1
}

func nothing() {
	go func() {
		var never chan int
		never <- 1
	}()
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go listener.Accept()
	var ready chan int
	fmt.Println(<-ready)
}

func main() {
	kinds := map[string]func(){
		"locks": locks, "room": room, "left": left, "condition": condition, "child": child,
		"server": server, "nothing": nothing, "rounds": rounds, "neighbours": neighbours,
	}
	// Without one that sleeps, Go itself would see that all are blocked.
	go func() {
		for {
			time.Sleep(time.Second)
		}
	}()
	fmt.Println("STARTED")
	kinds[os.Args[1]]()
}
