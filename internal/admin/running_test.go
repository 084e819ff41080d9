package admin

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/testkit"
)

// pattern returns random bytes and says how to get them again.
func pattern(t *testing.T, n int) []byte {
	r, b := rand.New(rand.NewPCG(testkit.Seed(t), 0)), make([]byte, n)
	testkit.Fill(r, b)
	return b
}

const testConfig = `
cache: {size: 8MiB}
portal: {listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
pools:
  - {name: gold, mdisks: [{name: m0, size: 128MiB}]}
  - {name: silver, copy: data, mdisks: [{name: m0, size: 128MiB}]}
  - {name: slow, mdisks: [{name: m0, size: 64MiB, bandwidth: 256KiB}]}
  - {name: small, mdisks: [{name: m0, size: 64MiB}]}
volumes:
  - {name: v, pool: gold, size: 16MiB, export: {lun: 0}}
  - {name: s, pool: slow, size: 16MiB, thin: false}
`

func parse(t *testing.T, text, data string) *Config {
	t.Helper()
	c, err := ParseConfig("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c.Data = data
	return c
}

// startTimeout is what a start or a stop may take on a machine that is busy with other things.
const startTimeout = 2 * time.Minute

// running is a daemon in this process.
type running struct {
	*Client
	t      *testing.T
	d      *daemon
	cancel context.CancelFunc
	hurry  chan struct{}
	end    chan error
	out    *logBuffer
}

// logBuffer is a bytes.Buffer for many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start runs a daemon until the test ends or stop.
func start(t *testing.T, cfg *Config) *running {
	t.Helper()
	return startWith(t, cfg, func(*daemon) {})
}

// startWith is start that calls prepare before the daemon runs.
func startWith(t *testing.T, cfg *Config, prepare func(*daemon)) *running {
	t.Helper()
	r := &running{Client: NewClient(cfg.Data), t: t, hurry: make(chan struct{}), end: make(chan error, 1), out: &logBuffer{}}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.d = newDaemon(cfg, Environment{Out: r.out, Log: slog.New(slog.NewTextHandler(r.out, nil)), Hurry: r.hurry})
	r.d.ending.hurry = startTimeout // a machine that stands still is no daemon that hangs
	prepare(r.d)
	go func() { r.end <- r.d.run(ctx) }()
	for end := time.Now().Add(startTimeout); !strings.Contains(r.out.String(), "ready: "); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-r.end:
			t.Fatalf("the daemon ended at its start: %v\n%s", err, r.out)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon is not ready:\n%s", r.out)
		}
	}
	t.Cleanup(func() {
		if r.end != nil {
			r.stop()
		}
	})
	return r
}

// stop ends the daemon in good order.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.end:
		if err != nil {
			r.t.Errorf("stop: %v", err)
		}
	case <-time.After(startTimeout):
		r.t.Fatalf("the daemon does not stop:\n%s", r.out)
	}
	r.end = nil
}

func (r *running) volumeOf(name string) *array.Volume {
	r.t.Helper()
	g := r.d.ofVolume(name)
	g.exec.Lock()
	defer g.exec.Unlock()
	v := g.array.Volume(name)
	if v == nil {
		r.t.Fatalf("there is no volume %s", name)
	}
	return v
}

func (r *running) request(volume string, q *block.Request) {
	r.t.Helper()
	if s := r.d.ofVolume(volume).request(r.volumeOf(volume), q); s != block.OK {
		r.t.Fatalf("%v: %s", q.Op, s)
	}
}

func (r *running) write(volume string, sector uint64, data []byte) {
	r.t.Helper()
	r.request(volume, &block.Request{Op: block.OpWrite, Range: block.Range{Start: sector, Count: uint64(len(data)) / block.SectorSize}, Data: [][]byte{data}})
}

func (r *running) read(volume string, sector uint64, n int) []byte {
	r.t.Helper()
	b := make([]byte, n)
	r.request(volume, &block.Request{Op: block.OpRead, Range: block.Range{Start: sector, Count: uint64(n) / block.SectorSize}, Data: [][]byte{b}})
	return b
}

// testUnitReady sends one command as an initiator and returns its status.
func (r *running) testUnitReady(initiator string, lun uint64) byte {
	r.t.Helper()
	end := make(chan struct{})
	task := &scsi.Task{LUN: lun << 48, CDB: make([]byte, 6), Bufs: buffers{}, Done: func(*scsi.Task) { close(end) }}
	r.d.groups[0].exec.Lock()
	n := r.d.groups[0].target.OpenNexus(initiator, initiator+",i,0x1", 1)
	n.Submit([]*scsi.Task{task})
	r.d.groups[0].exec.Unlock()
	<-end
	r.d.groups[0].exec.Lock()
	n.Close(func() {})
	r.d.groups[0].exec.Unlock()
	return task.Status
}

type buffers struct{}

func (buffers) Get(n int) []byte { return make([]byte, n) }

func (r *running) scrape() string {
	r.t.Helper()
	resp, err := http.Get("http://" + r.d.metricsAddr.String() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// hurriedDir is a folder of a daemon that is stopped at once: it may write there for a while yet.
func hurriedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "arraysim-hurried")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(startTimeout); os.RemoveAll(dir) != nil && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond)
		}
	})
	return dir
}

// die ends the daemon as the death of its process does: it is told to end at once, and does nothing more.
func (r *running) die() {
	r.t.Helper()
	for _, g := range r.d.groups {
		g.exec.Lock()
	}
	close(r.hurry) // first: nothing is to be destaged
	r.cancel()
	select {
	case <-r.end: // it may say that it has left something
	case <-time.After(startTimeout):
		r.t.Fatalf("the daemon does not end:\n%s", r.out)
	}
	r.end = nil
	r.forsaken()
}

// abandon is die for a daemon that has ended at once.
func (r *running) abandon() {
	r.t.Helper()
	for _, g := range r.d.groups {
		g.exec.Lock()
	}
	r.forsaken()
}

// forsaken puts a copy of the daemon's folder in the place of the folder, and has what is left of the daemon come to its end in the
// one that it had: nothing of it is there in later tests. Preconditions: the executors are held; they are given back.
func (r *running) forsaken() {
	r.t.Helper()
	was, dst := r.d.cfg.Data, r.t.TempDir()
	os.Remove(filepath.Join(was, socketName)) // where it had no time to do so itself
	if err := os.CopyFS(dst, os.DirFS(was)); err != nil {
		r.t.Fatal(err)
	}
	r.d.cfg.Data = dst
	for _, g := range r.d.groups {
		g.exec.Unlock()
	}
	for end := time.Now().Add(startTimeout); !strings.Contains(r.out.String(), "msg=stopped"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("what is left of the daemon does not end:\n%s", r.out)
		}
	}
}
