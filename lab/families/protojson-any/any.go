// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"runtime"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	runtime.LockOSThread()
	role("waiter")
	truth("ready")
	options := protojson.UnmarshalOptions{DiscardUnknown: true}
	fmt.Println(options.Unmarshal([]byte(`{"a":{"":},"":}`), new(emptypb.Empty)))
}
