// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"io"
	"os/exec"
	"time"
)

func main() {
	child := exec.Command("perl", "-e", "print STDERR 'x' x 1_000_000; print 'done'")
	out, _ := child.StdoutPipe()
	errors, _ := child.StderrPipe()
	if err := child.Start(); err != nil {
		panic(err)
	}
	truth("role child %d", child.Process.Pid)
	time.AfterFunc(400*time.Millisecond, func() { truth("ready") })
	text, _ := io.ReadAll(out)
	complaints, _ := io.ReadAll(errors)
	fmt.Println(len(text), len(complaints), child.Wait())
}
