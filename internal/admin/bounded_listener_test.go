package admin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
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

// active counts the connections with a request under way.
func (l *boundedListener) active() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		if c.active {
			n++
		}
	}
	return n
}

// TestConnectionsInUseStay: of somebody with many connections, as a proxy has them for all who come through it, those go
// first that no request is under way on, however long another one takes.
func TestConnectionsInUseStay(t *testing.T) {
	const limit = 4
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	began, release := make(chan struct{}, limit), make(chan struct{})
	d := &daemon{log: slog.New(slog.DiscardHandler)}
	b := &boundedListener{Listener: l, limit: limit}
	s := d.serveHTTP("test", b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			began <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "here")
	}))
	t.Cleanup(func() { s.Close(); d.background.Wait() })
	ask := func(nc net.Conn, path string) {
		fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	}
	answer := func(nc net.Conn) error {
		_ = nc.SetReadDeadline(time.Now().Add(30 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return err
	}
	var long []net.Conn
	for range limit - 1 {
		nc := dialFrom(t, "127.0.0.1", l.Addr().String())
		ask(nc, "/long")
		<-began
		long = append(long, nc)
	}
	for range 2 * limit { // each one stays open, and idle
		nc := dialFrom(t, "127.0.0.1", l.Addr().String())
		ask(nc, "/short")
		if err := answer(nc); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); b.active() >= limit; time.Sleep(time.Millisecond) { // the server knows soon
			if time.Now().After(end) {
				t.Fatal("a connection stays active whose answer has ended")
			}
		}
	}
	close(release)
	for i, nc := range long {
		if err := answer(nc); err != nil {
			t.Errorf("request %d was cut off, although other connections were idle: %v", i, err)
		}
	}
}

// TestRefusedBodyIsNoReset: who is refused before all of the body was read reads the answer to its end, and then the end of
// the connection, and no reset that may take the answer with it.
func TestRefusedBodyIsNoReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })}
	go s.Serve(&boundedListener{Listener: l, limit: 4})
	t.Cleanup(func() { s.Close() })
	nc := dialFrom(t, "127.0.0.1", l.Addr().String())
	const size = 512 << 10 // more than the server reads on behind an answer
	fmt.Fprintf(nc, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
	if _, err := nc.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(30 * time.Second))
	if b, err := io.ReadAll(nc); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 401") {
		t.Errorf("%.20q, %v", b, err)
	}
}

// TestReadDeadlineEndsWithTheBody: the time for a body ends no request whose body has arrived, and no later one of its
// connection, however long its handler is at work.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	const within = 200 * time.Millisecond
	address := serveOn(t, promptly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			fmt.Fprint(w, "canceled")
		case <-time.After(2 * within):
			fmt.Fprint(w, "done")
		}
	}), within))
	nc := dialFrom(t, "127.0.0.1", address)
	in := bufio.NewReader(nc)
	for _, request := range []string{"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"} {
		fmt.Fprint(nc, request)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "done" {
			t.Errorf("%.4s: %q, %v", request, b, err)
		}
	}
}
