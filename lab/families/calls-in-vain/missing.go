// SPDX-License-Identifier: MIT
package main

import "os"

func main() {
	for {
		if _, err := os.Stat("/tmp/never-there"); err == nil {
			return
		}
	}
}
