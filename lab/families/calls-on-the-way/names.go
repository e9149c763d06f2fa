// SPDX-License-Identifier: MIT
package main

import (
	"crypto/sha256"
	"fmt"
	"os"
)

func main() {
	found := 0
	for i := 0; ; i++ {
		if _, err := os.Stat(fmt.Sprintf("/tmp/candidate-%d", i)); err == nil {
			found++
		}
		found += int(sha256.Sum256([]byte(fmt.Sprint(i)))[0]) & 0
	}
}
