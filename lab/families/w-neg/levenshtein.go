// Distances of texts, in one goroutine.
package main

var best int

func distance(a, b []byte) int {
	row := make([]int, len(b)+1)
	for j := range row { row[j] = j }
	for i := 1; i <= len(a); i++ { last := row[0]; row[0] = i
		for j := 1; j <= len(b); j++ { cost := last; if a[i-1] != b[j-1] { cost = 1 + min(last, min(row[j], row[j-1])) }; last, row[j] = row[j], cost } }
	return row[len(b)]
}
func min(a, b int) int { if a < b { return a }; return b }
func main() { x := uint32(1)
	for { a, b := make([]byte, 500), make([]byte, 700)
		for i := range a { x = x*1664525 + 1013904223; a[i] = byte(x >> 28) }
		for i := range b { x = x*1664525 + 1013904223; b[i] = byte(x >> 28) }
		if d := distance(a, b); d > best { best = d } } }
