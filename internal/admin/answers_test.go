package admin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/history"
)

// unreadable is more than the buffers of a connection to serveOn hold that ask has made.
const unreadable = 2 << 20

// ask opens a connection, sends a question, and leaves the answer unread. Its receive buffer is small.
func ask(t *testing.T, network, address, path string) net.Conn {
	t.Helper()
	nc, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	return nc
}

// serveOn serves over connections whose send buffers are small, and stay so.
func serveOn(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
		_ = nc.(*net.TCPConn).SetWriteBuffer(64 << 10)
		return ctx
	}}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// TestAnswersAreReadPromptly: an answer that nobody reads ends, and its handler with it; the time that the handler takes
// before does not count, nor that between two questions of one connection.
func TestAnswersAreReadPromptly(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	const within = 300 * time.Millisecond
	ended := make(chan error, 10)
	big := make([]byte, unreadable)
	address := serveOn(t, promptly(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := []byte("small")
		if r.URL.Path == "/big" {
			body = big
		} else {
			time.Sleep(2 * within)
		}
		_, err := w.Write(body)
		ended <- err
	}), within))
	ask(t, "tcp", address, "/big")
	select {
	case err := <-ended:
		if err == nil {
			t.Error("2 MiB went to somebody who reads nothing")
		}
	case <-time.After(time.Minute):
		t.Fatal("an answer that nobody reads keeps its handler")
	}
	nc := ask(t, "tcp", address, "/")
	r := bufio.NewReader(nc)
	for range 3 {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("a handler that takes longer than its answer may: %v", err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "small" {
			t.Fatalf("%q, %v", b, err)
		}
		time.Sleep(2 * within)
		fmt.Fprint(nc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
}

// TestBoundedAnswers: so many are computed, so many wait, the others hear so at once; and of what is not read the oldest is cut.
func TestBoundedAnswers(t *testing.T) {
	const patience = 5 * time.Minute // on a busy machine
	release, now, most := make(chan struct{}), atomic.Int32{}, atomic.Int32{}
	first, releaseFirst := atomic.Pointer[string]{}, make(chan struct{}) // the path of who is computed first
	answer := make([]byte, unreadable)
	b := newBounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if first.CompareAndSwap(nil, &r.URL.Path) {
			<-releaseFirst
		} else {
			<-release
		}
		_, _ = w.Write(answer)
	}))
	if b.maxUnread != maxUnread {
		t.Errorf("answers of %d bytes may be unread, want %d", b.maxUnread, maxUnread)
	}
	b.patience, b.maxUnread = patience, unreadable*5/2
	address := serveOn(t, promptly(b, patience))
	heard := func(nc net.Conn) *http.Response {
		_ = nc.SetReadDeadline(time.Now().Add(patience))
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	asked := map[string]net.Conn{}
	for i := range computing + inLine {
		path := fmt.Sprint("/", i)
		asked[path] = ask(t, "tcp", address, path)
	}
	for deadline := time.Now().Add(patience); len(b.line) < computing+inLine || now.Load() < computing; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d are in line, and %d computed", len(b.line), now.Load())
		}
	}
	if code := heard(ask(t, "tcp", address, "/")).StatusCode; code != http.StatusServiceUnavailable {
		t.Errorf("one more than may wait gets %d", code)
	}
	close(releaseFirst)
	oldest := heard(asked[*first.Load()]) // it has begun before there is another one, which would have it cut
	if oldest.StatusCode != http.StatusOK {
		t.Errorf("the first one hears %d", oldest.StatusCode)
	}
	close(release)
	for deadline := time.Now().Add(patience); len(b.line) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait behind those who do not read", len(b.line))
		}
	}
	if most.Load() != computing {
		t.Errorf("%d were computed at one time", most.Load())
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		kept, bytes := len(b.unread), b.bytes
		b.mu.Unlock()
		if bytes <= b.maxUnread {
			if kept == 0 {
				t.Error("the newest answers were cut, too")
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d answers of %d bytes are kept for nobody", kept, bytes)
		}
	}
	if n, err := io.Copy(io.Discard, oldest.Body); err == nil {
		t.Errorf("the oldest answer is whole: %d bytes", n)
	}
}

// deadlines is a writer that keeps the last deadline.
type deadlines struct {
	http.ResponseWriter
	last time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.last = t; return nil }

// TestACutStays: an answer that is cut before its first byte has no more time behind it.
func TestACutStays(t *testing.T) {
	b, within := newBounded(nil), time.Hour
	b.maxUnread = 1 << 20
	conns := [2]*deadlines{}
	for i := range conns {
		conns[i] = &deadlines{ResponseWriter: httptest.NewRecorder()}
		w := &prompt{ResponseWriter: conns[i], control: http.NewResponseController(conns[i]), within: within}
		b.keep(make([]byte, b.maxUnread*3/4), w)
		defer func() { // as the handler that was about to write
			w.WriteHeader(http.StatusOK)
			if ends := time.Until(conns[i].last); (ends <= 0) != (i == 0) {
				t.Errorf("answer %d has %v to be read", i, ends)
			}
		}()
	}
}

// TestHistoryWithSlowReaders: many who ask for the whole history and read nothing keep neither the others nor the samples.
func TestHistoryWithSlowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	c := parse(t, testConfig, t.TempDir())
	c.Data = t.TempDir()
	h := openHistory(c.Data, func(line string) { t.Error(line) })
	ago := time.Now().Add(-50 * time.Minute)
	for i := range 2900 {
		rows := []history.Row{{Kind: kindTotal, Values: make([]float32, len(trafficFields))}}
		for v := range history.MaxRows {
			values := make([]float32, len(trafficFields))
			for j := range values {
				values[j] = float32(1e6 + i*v + j)
			}
			rows = append(rows, history.Row{Kind: kindVolume, Name: fmt.Sprint("v", v), Values: values})
		}
		h.Append(ago.Add(time.Duration(i)*time.Second), time.Second, rows)
	}
	h.Close()
	r := start(t, c)
	socket, path := filepath.Join(c.Data, "admin.sock"), apiPath+"/history?seconds=3600&points=1000&top=64"
	for range 100 {
		ask(t, "unix", socket, path)
	}
	answered, end := 0, time.Now().Add(5*time.Second)
	slowest := time.Duration(0)
	for time.Now().Before(end) || answered < 3 {
		began := time.Now()
		got, err := r.History(t.Context(), HistoryQuery{Seconds: 3600, Points: 1000, Top: 64})
		slowest = max(slowest, time.Since(began))
		if err == nil {
			if answered++; len(got.Objects) < history.MaxRows {
				t.Fatalf("%d objects", len(got.Objects))
			}
		} else if time.Since(end) > time.Minute {
			t.Fatalf("behind 100 who do not read nobody gets an answer: %v", err)
		}
		if _, err := r.Counters(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // who asks without a pause only takes what the machine has
	}
	t.Logf("%d answers, the slowest in %v", answered, slowest)
}
