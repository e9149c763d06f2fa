// Goroutines count words of a text, and hand the counts on.
package main

import ("fmt"; "sort"; "strings"; "strconv")

func words(from int) map[string]int {
	found := map[string]int{}
	var b strings.Builder
	for i := 0; i < 2000; i++ { b.WriteString(strconv.Itoa((from*7919 + i*104729) % 997)); b.WriteByte(' ') }
	for _, w := range strings.Fields(b.String()) { found[w]++ }
	return found
}
func main() {
	results := make(chan map[string]int, 4)
	for w := 0; w < 2; w++ { go func(w int) { for n := w; ; n += 2 { results <- words(n) } }(w) }
	total := map[string]int{}
	for n := 0; ; n++ { for w, c := range <-results { total[w] += c }
		if n%100 == 0 { keys := make([]string, 0, len(total)); for k := range total { keys = append(keys, k) }; sort.Strings(keys); if len(keys) > 1e6 { fmt.Println(keys[0]) } } }
}
