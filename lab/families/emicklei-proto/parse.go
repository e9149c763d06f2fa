// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/emicklei/proto"
)

const text = `package p;message r{r e=1;4m=2}message r{g e=3;4m=4}message a{r e=1;4m=2g d=3}` +
	`service e{rpc t(r)returns(r){optioo`

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	fmt.Println(proto.NewParser(strings.NewReader(text)).Parse())
}
