// SPDX-License-Identifier: MIT

// How a Go program of the lab says what is true of it, as truth.h does for C. It is copied beside
// the program.
package main

import (
	"fmt"
	"os"
	"strings"
)

func truth(format string, arguments ...any) {
	file, err := os.OpenFile(os.Getenv("LAB_TRUTH"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		file = os.Stderr
	}
	fmt.Fprintf(file, format+"\n", arguments...)
}

// role: the calling thread has it; a goroutine calls runtime.LockOSThread first.
func role(name string) {
	link, _ := os.Readlink("/proc/thread-self")
	parts := strings.Split(link, "/")
	truth("role %s %s %s", name, parts[0], parts[2])
}
