// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"runtime"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	decoder := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder()
	fmt.Println(transform.String(decoder, "a"))
}
