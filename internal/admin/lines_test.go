package admin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// stuck is a writer whose reader has stopped until it is released.
type stuck struct {
	release chan struct{}
	writes  chan struct{} // one is under way

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func newStuck() *stuck { return &stuck{release: make(chan struct{}), writes: make(chan struct{}, 1)} }

func (s *stuck) Write(b []byte) (int, error) {
	poke(s.writes)
	<-s.release
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *stuck) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestLinesNeverWait: who says a line does not wait for the log's reader. When that one reads again, it finds the oldest lines
// in their order, how many were dropped behind them, and then what was said later.
func TestLinesNeverWait(t *testing.T) {
	to := newStuck()
	l := newLines(slog.New(slog.NewTextHandler(to, nil)))
	l.say("first")
	<-to.writes
	begin := time.Now()
	for i := range mostLines + 7 {
		l.say(fmt.Sprint("line ", i, "."))
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("who says it waits for %v", took)
	}
	begin = time.Now()
	if l.end(); time.Since(begin) > linesPatience+time.Minute {
		t.Error("its end waits for a reader that has stopped")
	}
	close(to.release)
	<-l.ended
	text := to.String()
	at := 0
	for _, want := range []string{"first", "line 0.", "line 1.", fmt.Sprintf("line %d.", mostLines-1), "lines=7"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("no %q, in its order, in:\n%s", want, text)
		}
		at += i
	}
	if strings.Contains(text, fmt.Sprintf("line %d.", mostLines)) || strings.Count(text, "level=WARN") != mostLines+2 {
		t.Errorf("it has too much:\n%s", text)
	}
	l.end()
	(*lines)(nil).end()
}

// TestRenewalsDoNotWaitForReaders: where the readers of the log and of systemd's messages have stopped, the lease of an array
// in a pool is renewed all the same, though the store has something to say.
func TestRenewalsDoNotWaitForReaders(t *testing.T) {
	manager := newSystemd(t, "")
	fill, err := net.Dial("unixgram", os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // until nobody can be told anything
		fill.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, err = fill.Write([]byte("full"))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	to := newStuck()
	cfg := parse(t, testConfig, filepath.Join(t.TempDir(), "d"))
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(cfg, Environment{Out: io.Discard, Log: slog.New(slog.NewTextHandler(to, nil))})
	o := newOpening(d)
	d.opening, d.lines = o, newLines(d.log)
	t.Cleanup(func() {
		close(to.release)
		manager.Close()
		o.end()
		d.lines.end()
	})

	v := &block.Virtual{}
	c := simulated.New(simulated.Options{Latency: 1e6}, rand.New(rand.NewPCG(1, 1)))
	p := simulated.NewProcess(v)
	client := c.Connect(p, "array")
	region := "nvram"
	for c.OSDOf("array", region) == c.OSDOf("array", "array") {
		region += "x"
	}
	c.Stop(c.OSDOf("array", region))
	var s *rados.Store
	opt := rados.Options{Log: rados.LogReplicated, Cookie: "p", Lease: leaseTime, Self: rados.Owner{Host: "a", PID: 1},
		Notice: d.lines.say, Waits: o.begin(&folder{path: cfg.Data})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Go(func() {
			if s, err = rados.Open(p, client, opt); err == nil {
				_, _, err = s.Region(region, block.RegionLayout{State: 512, Counters: 64, Log: 4096})
			}
		})
		v.RunUntil(30e9) // behind ten it says that the OSD does not answer
	}()
	select {
	case <-ended:
	case <-time.After(startTimeout):
		t.Fatal("the thread that renews the lease waits for a reader")
	}
	<-to.writes
	if s == nil || !s.Serving() || !strings.Contains(o.status().Trouble, region) {
		t.Errorf("the lease is not good: %v, it shows %+v", err, o.status())
	}
	client.Kill()
	p.Kill()
}
