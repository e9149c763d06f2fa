// SPDX-License-Identifier: MIT
package main

import "net"

func main() {
	for {
		if c, err := net.Dial("tcp", "127.0.0.1:9"); err == nil {
			c.Close()
			return
		}
	}
}
