package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// TestCloseUnderLoad: a store is closed while overlapping writes are under way, some held behind others,
// each of which submits another transfer when it ends, reads among them. What has begun ends before its
// files are closed, all else is refused by the same error, whatever was asked for, and nothing touches a
// file that is closed.
func TestCloseUnderLoad(t *testing.T) {
	for _, engine := range []string{"ring", "goroutines"} {
		t.Run(engine, func(t *testing.T) {
			for round := range 10 {
				closeUnderLoad(t, round, FilesOptions{NoRing: engine != "ring"})
			}
		})
	}
}

func closeUnderLoad(t *testing.T, round int, opt FilesOptions) {
	t.Helper()
	exec := block.NewLive()
	defer exec.Stop()
	fs := &awayFS{FS: OS}
	opt.FS = fs
	s, err := OpenFiles(exec, t.TempDir(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if !opt.NoRing {
		needRing(t, s)
	}
	m, err := s.Medium("m", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	fs.closed.Store(0)
	const chains, refusals = 300, 3
	var all sync.WaitGroup
	all.Add(chains)
	exec.Lock()
	for i := range chains {
		ended := 0 // with an error
		io := &block.IO{Write: true, Off: uint64(i%7) * 2048, N: 4096, Vec: [][]byte{make([]byte, 4096)}}
		io.Done = func(io *block.IO) {
			switch {
			case io.Err != nil:
				if ended++; !errors.Is(io.Err, ErrClosed) {
					t.Errorf("write %v ends with %v", io.Write, io.Err)
				}
			case ended > 0:
				t.Errorf("write %v ends well behind %d refusals", io.Write, ended)
			}
			if ended == refusals {
				all.Done()
				return
			}
			io.Write = i%3 == 0 || !io.Write
			m.Submit([]*block.IO{io})
		}
		m.Submit([]*block.IO{io})
	}
	exec.Unlock()
	time.Sleep(time.Duration(round) * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := fs.closed.Load(); n != mdiskFiles {
		t.Errorf("%d files were closed, and not %d", n, mdiskFiles)
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("some never ended")
	}
	if n := fs.after.Load(); n != 0 {
		t.Errorf("%d operations on closed files", n)
	}
	allRefused(t, exec, s, m)
}

// allRefused asks a closed store for everything.
func allRefused(t *testing.T, exec *block.Live, s *Files, m block.Medium) {
	t.Helper()
	l := live{exec}
	for what, begin := range map[string]func(done func(error)){
		"sync":    m.Sync,
		"discard": func(done func(error)) { m.(block.Discarder).Discard(0, 4096, done) },
		"make":    func(done func(error)) { s.MakeMedium("new", 1<<20, done) },
		"remove":  func(done func(error)) { s.RemoveMedium("m", done) },
		"open":    func(done func(error)) { _, err := s.Medium("m", 4<<20); done(err) },
		"meta":    func(done func(error)) { _, err := s.Meta(); done(err) },
		"nvram": func(done func(error)) {
			_, _, err := s.Region("nvram", block.RegionLayout{State: 4096})
			done(err)
		},
		"close": func(done func(error)) { go func() { err := s.Close(); exec.Post(func() { done(err) }) }() },
	} {
		var got error
		l.Wait(func(done func()) { begin(func(err error) { got = err; done() }) })
		if !errors.Is(got, ErrClosed) {
			t.Errorf("%s of a closed store ends with %v", what, got)
		}
	}
}
