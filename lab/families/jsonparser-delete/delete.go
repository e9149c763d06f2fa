// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"runtime"

	"github.com/buger/jsonparser"
)

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	fmt.Println(jsonparser.Delete([]byte("1{1"), "a"))
}
