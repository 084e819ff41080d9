package admin

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/tcmu"
)

// ends waits for the end of a daemon that was told to end.
func (r *running) ends() error {
	r.t.Helper()
	select {
	case err := <-r.end:
		r.end = nil
		return err
	case <-time.After(time.Minute):
		r.t.Fatalf("it does not end:\n%s", r.out)
		return nil
	}
}

// TestStopThatHangs: an executor is held for good. A daemon that is told to stop ends with an error, after its time or, told so twice,
// at once, and one line of the log says what hangs.
func TestStopThatHangs(t *testing.T) {
	for _, hurry := range []bool{false, true} {
		r := startWith(t, parse(t, testConfig, hurriedDir(t)), func(d *daemon) {
			if d.ending.step = 100 * time.Millisecond; hurry {
				d.ending.step, d.ending.hurry = time.Hour, 100*time.Millisecond
			}
		})
		r.d.groups[0].exec.Lock()
		r.cancel()
		if hurry {
			close(r.hurry)
		}
		err := r.ends()
		switch {
		case hurry && err == nil: // what waits for nothing has ended in good order
		case !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "I/O group 0, whose executor is held"):
			t.Errorf("hurry %v: it ends with %v", hurry, err)
		default:
			if n := strings.Count(r.out.String(), "the stop does not end"); n != 1 || strings.Contains(r.out.String(), "msg=stopped") {
				t.Errorf("hurry %v: %d lines say so:\n%s", hurry, n, r.out)
			}
		}
		r.d.groups[0].exec.Unlock() // what is left of it ends now, and nothing in later tests
	}
}

// TestStopHasALimit: limits of a stop end before systemd kills the process.
func TestStopHasALimit(t *testing.T) {
	units, err := filepath.Glob("../../scripts/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, unit := range units {
		b, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindSubmatch(b)
		if m == nil {
			t.Errorf("%s has no TimeoutStopSec", unit)
			continue
		}
		if limit, err := time.ParseDuration(string(m[1])); err != nil || limit < stopLimit+10*time.Second {
			t.Errorf("%s has TimeoutStopSec=%s, and a stop takes up to %v: %v", unit, m[1], stopLimit, err)
		}
	}
	if drainPatience >= stepLimit || destageLimit+2*stepLimit > stopLimit+30*time.Second {
		t.Error("a stop that destages has no time for the rest")
	}
}

// TestStopDestagesForATime: what a slow mdisk has not taken by then stays in NVRAM, the log says how much, and the next start has it.
func TestStopDestagesForATime(t *testing.T) {
	c := parse(t, testConfig, hurriedDir(t))
	r := startWith(t, c, func(d *daemon) { d.ending.destage = time.Second })
	data := pattern(t, 1<<20)
	few := Size(1 << 10)
	if _, err := r.ChangeMdisk(t.Context(), "slow", "m0", MdiskChange{Bandwidth: &few}); err != nil {
		t.Fatal(err)
	}
	r.write("s", 0, data)
	r.cancel()
	if err := r.ends(); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`msg="the stop destages no longer.* left="?[1-9]`).MatchString(r.out.String()) || !regexp.MustCompile(`msg=stopped .*left="?[1-9]`).MatchString(r.out.String()) {
		t.Errorf("the log does not say what is left:\n%s", r.out)
	}
	r = start(t, parse(t, testConfig, c.Data))
	if got := r.read("s", 0, len(data)); !bytes.Equal(got, data) {
		t.Error("the data is not the same")
	}
	r.cancel()
	close(r.hurry)
	if err := r.ends(); err != nil {
		t.Error(err)
	}
}

// TestWhatAStopWaitsFor: volumes with commands in progress are named, with their LUNs.
func TestWhatAStopWaitsFor(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	few := Size(1 << 10)
	if _, err := r.ChangeMdisk(t.Context(), "gold", "m0", MdiskChange{Bandwidth: &few}); err != nil {
		t.Fatal(err)
	}
	g := r.d.groups[0]
	g.exec.Lock()
	g.array.SetMirrored(false) // writes go through to the mdisk
	n := g.target.OpenNexus("iqn.x:y", "iqn.x:y,i,0x1", 1)
	for range 2 { // the first command hears of a power-on
		probe := &scsi.Task{CDB: make([]byte, 6), Bufs: buffers{}, Done: func(*scsi.Task) {}}
		n.Submit([]*scsi.Task{probe})
	}
	g.exec.Unlock()
	const want = "volume v, LUN 0: 1 commands in progress"
	var got string
	for try := 0; try < 5 && !strings.Contains(got, want); try++ { // a busy machine may look when the write has ended
		end := make(chan struct{})
		g.exec.Lock()
		n.Submit([]*scsi.Task{{CDB: []byte{0x2A, 0, 0, 0, 0, 0, 0, 0, 8, 0}, DataOut: [][]byte{make([]byte, 4096)}, OutTotal: 4096,
			Bufs: buffers{}, Done: func(*scsi.Task) { close(end) }}})
		g.exec.Unlock()
		for !isClosed(end) && !strings.Contains(got, want) {
			got = strings.Join(r.d.waitsFor(), "; ")
			time.Sleep(5 * time.Millisecond)
		}
		<-end
	}
	if !strings.Contains(got, want) {
		t.Errorf("it waits for %q", got)
	}
	g.exec.Lock()
	n.Close(func() {})
	g.exec.Unlock()
}

// TestStartThatIsStopped: a signal ends a start where it is, and nothing of that is an error. While it collects garbage the admin socket
// answers with how far it is.
func TestStartThatIsStopped(t *testing.T) {
	d := newDaemon(parse(t, testConfig, t.TempDir()), Environment{Log: slog.New(slog.NewTextHandler(&logBuffer{}, nil))})
	d.data = &folder{path: d.cfg.Data}
	hook := d.starts(t.Context(), d.data)
	if err := hook(array.Progress{Step: "reading maps"}); err != nil || d.opening != nil {
		t.Fatalf("%v, %v", err, d.opening)
	}
	for n := range 3 {
		if err := hook(array.Progress{Step: "collecting garbage", Pool: "fast", Collected: 100 * n}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := NewClient(d.cfg.Data).Status(t.Context())
	if err != nil || s.Start == nil || s.Start.Pool != "fast" || s.Start.Collected == nil || *s.Start.Collected != 200 || s.Ownership != nil {
		t.Errorf("%+v, %v", s, err)
	}
	var b bytes.Buffer
	WriteStatus(&b, s)
	if !strings.Contains(b.String(), "collecting garbage of pool fast: 200 pages of maps so far") {
		t.Errorf("arraysim status prints\n%s", &b)
	}
	d.opening.end()
	if !onlyCanceled(errors.Join(errStopped)) {
		t.Error("the end of such a start is an error")
	}
}

// TestStopThatGoesOn: a step that takes longer than it may be without progress, and makes progress, is none that hangs. One whose
// executor is held makes none.
func TestStopThatGoesOn(t *testing.T) {
	e := newEnding()
	end, look := make(chan error), make(chan time.Time)
	var n atomic.Uint64
	var held sync.Mutex
	done := make(chan error, 1)
	go func() {
		done <- e.goesOn("the last checkpoint", end, look, func() uint64 {
			held.Lock()
			defer held.Unlock()
			return n.Load()
		})
	}()
	// looks has it look, and returns whether that found progress.
	looks := func() bool {
		look <- time.Time{} // what was begun before is dealt with
		e.mu.Lock()
		e.since = time.Time{}
		e.mu.Unlock()
		look <- time.Time{}
		look <- time.Time{}
		_, since := e.now()
		return !since.IsZero()
	}
	if looks() {
		t.Error("nothing has ended, and it makes progress")
	}
	e.mu.Lock()
	e.since = time.Time{}
	e.mu.Unlock()
	n.Store(1)
	look <- time.Time{}
	look <- time.Time{} // the one before is dealt with
	if what, since := e.now(); since.IsZero() || what != "the last checkpoint" {
		t.Errorf("a batch has ended, and %q makes no progress", what)
	}
	if looks() {
		t.Error("what has ended before the last look is progress again")
	}
	held.Lock()
	n.Store(2)
	if looks() {
		t.Error("an executor is held, and it makes progress")
	}
	held.Unlock()
	failed := errors.New("the disk is full")
	end <- failed
	if err := <-done; !errors.Is(err, failed) {
		t.Errorf("it ends with %v", err)
	}
}

// TestStopSaysWhichLimit: a stop that makes progress to its last moment does not say that it made none.
func TestStopSaysWhichLimit(t *testing.T) {
	for want, prepare := range map[string]func(*daemon){
		"after its limit of 100ms it is still at":   func(d *daemon) { d.ending.stop = 100 * time.Millisecond },
		"100ms after the second signal it is still": func(d *daemon) { d.ending.hurry = 100 * time.Millisecond },
		"no progress of": func(d *daemon) { d.ending.step = 100 * time.Millisecond },
	} {
		hurry := make(chan struct{})
		close(hurry)
		d := newDaemon(parse(t, testConfig, t.TempDir()), Environment{Log: slog.New(slog.DiscardHandler), Hurry: hurry})
		d.ending.step, d.ending.stop, d.ending.hurry = time.Hour, time.Hour, time.Hour
		prepare(d)
		d.ending.begin()
		if err := d.await(make(chan error)); !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), want) {
			t.Errorf("it ends with %v, and does not say %q", err, want)
		}
	}
}

// busyKernel is a TCMU server with a command in progress that does not end.
type busyKernel struct{ hurried chan struct{} }

func (k busyKernel) Run(ctx context.Context) error {
	<-ctx.Done()
	<-k.hurried
	return errors.New("a command is in progress")
}
func (k busyKernel) Hurry()                  { close(k.hurried) }
func (k busyKernel) Devices() []*tcmu.Device { return nil }

// TestSecondSignalBesideTheKernel: a daemon that is told to end at once does not leave the kernel with the parameters of a server that
// is about to end.
func TestSecondSignalBesideTheKernel(t *testing.T) {
	var k *kernelDoor
	r := startWith(t, parse(t, testConfig, hurriedDir(t)), func(d *daemon) {
		k = &kernelDoor{d: d}
		k.serve(busyKernel{make(chan struct{})})
		d.kernel = k
	})
	r.cancel()
	close(r.hurry)
	if err := r.ends(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	select {
	case <-k.ended:
	default:
		t.Error("the process ends before the TCMU front end")
	}
}
