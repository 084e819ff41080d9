package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// dialFrom opens a connection from an address of the loopback interface.
func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	nc, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

// ends reports whether a connection is closed by the other side.
func ends(nc net.Conn) bool {
	_ = nc.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, err := io.Copy(io.Discard, nc)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// TestManyConnections: connections that say nothing are bounded, and whoever has few of them keeps them.
func TestManyConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const limit = 8
	b := &boundedListener{Listener: l, limit: limit}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })}
	go s.Serve(b)
	t.Cleanup(func() { s.Close() })
	honest := dialFrom(t, "127.0.0.2", l.Addr().String())
	r := bufio.NewReader(honest)
	ask := func() {
		t.Helper()
		fmt.Fprint(honest, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("a connection of somebody who has one: %v", err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "here" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	ask()
	var mute []net.Conn
	for range 3 * limit {
		mute = append(mute, dialFrom(t, "127.0.0.1", l.Addr().String()))
	}
	for _, nc := range mute[:2*limit] { // one of the others is honest's
		if !ends(nc) {
			t.Fatal("an old connection that says nothing stays, of more than there may be")
		}
	}
	ask()
	b.mu.Lock()
	open := len(b.open)
	b.mu.Unlock()
	if open != limit {
		t.Errorf("%d connections are open, want %d", open, limit)
	}
	honest.Close()
	for _, nc := range mute {
		nc.Close()
	}
	for end := time.Now().Add(time.Minute); open > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are open that ended", open)
		}
		b.mu.Lock()
		open = len(b.open)
		b.mu.Unlock()
	}
}

// TestBodiesArrivePromptly: a body that was announced and does not come ends its connection, whether anybody reads it or not.
func TestBodiesArrivePromptly(t *testing.T) {
	address := serveOn(t, promptly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		w.WriteHeader(http.StatusUnauthorized)
	}), 300*time.Millisecond))
	for _, path := range []string{"/read", "/unread"} {
		nc := dialFrom(t, "127.0.0.1", address)
		fmt.Fprintf(nc, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nx", path)
		if !ends(nc) {
			t.Errorf("%s: a connection waits for a body that does not come", path)
		}
	}
}
