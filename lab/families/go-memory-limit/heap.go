// SPDX-License-Identifier: MIT
package main

import "runtime"

type node struct {
	left, right *node
	data        [4]int
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

func main() {
	kept := tree(19)
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	for {
		kept.left = tree(18)
	}
}
