// SPDX-License-Identifier: MIT
package feed

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

func subscribe(t *testing.T, url string) io.ReadCloser {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Body
}

// The handler answers until it is told to end. What tells it stands behind what waits for it.
func TestFeedEnds(t *testing.T) {
	fmtOut, _ := os.OpenFile(os.Getenv("LAB_TRUTH"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-ended
	}))
	hangs := os.Getenv("FEED_RUN") == "bad"
	if hangs {
		defer close(ended)
		defer server.Close()
	} else {
		defer server.Close()
		defer close(ended)
	}
	body := subscribe(t, server.URL)
	first := make([]byte, 6)
	if _, err := io.ReadFull(body, first); err != nil || string(first) != "first\n" {
		t.Errorf("got %q, %v", first, err)
	}
	say(fmtOut)
	if !hangs {
		time.Sleep(time.Hour)
	}
}
