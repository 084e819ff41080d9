package rados_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

func newCluster(opt simulated.Options) *simulated.Cluster {
	return simulated.New(opt, rand.New(rand.NewPCG(7, 7)))
}

func medium(t testing.TB, s block.Store, size uint64) block.Medium {
	t.Helper()
	m, err := s.Medium("m", size)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// begin starts a transfer.
func begin(m block.Medium, write bool, off uint64, b []byte) (io *block.IO, ended *bool) {
	ended = new(bool)
	io = &block.IO{Write: write, Off: off, N: uint64(len(b)), Vec: [][]byte{b}, Done: func(*block.IO) { *ended = true }}
	m.Submit([]*block.IO{io})
	return io, ended
}

// transfer carries one out.
func transfer(t *testing.T, x *block.Virtual, m block.Medium, write bool, off uint64, b []byte) error {
	t.Helper()
	io, ended := begin(m, write, off, b)
	if *ended {
		t.Fatal("a transfer ended inside of Submit")
	}
	if x.Run(); !*ended {
		t.Fatal("a transfer never ended")
	}
	return io.Err
}

func filled(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n) }

// TestDamageIsFound: a byte that the cluster has changed is a wrong checksum, of the right sector, in the data
// as in the checksums, and no other sector's.
func TestDamageIsFound(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	m := medium(t, open(t, c, x, rados.Options{}), 12<<20)
	if err := transfer(t, x, m, true, 0, filled(9<<20, 3)); err != nil {
		t.Fatal(err)
	}
	if !c.Damage("array", "m0.00000001", 5*512+7) || !c.Damage("array", "m0.00000002", 4<<20+9*4) {
		t.Fatal("the extents are not where they should be")
	}
	got := make([]byte, 9<<20)
	var sum *block.ChecksumError
	if err := transfer(t, x, m, false, 0, got); !errors.As(err, &sum) {
		t.Fatalf("damage was not found: %v", err)
	}
	const extent = 4 << 20 / 512
	seen := map[uint64]bool{}
	for _, s := range sum.Sectors {
		seen[s] = true
	}
	if len(sum.Sectors) != 2 || !seen[extent+5] || !seen[2*extent+9] {
		t.Errorf("wrong are the sectors %v", sum.Sectors)
	}
	if err := transfer(t, x, m, false, 4<<20+6*512, make([]byte, 4<<20+4*512)); !errors.As(err, &sum) || len(sum.Sectors) != 1 {
		t.Errorf("a read beside some damage: %v", err)
	}
	if err := transfer(t, x, m, true, 4<<20+5*512, filled(512, 4)); err != nil {
		t.Fatal(err)
	}
	if err := transfer(t, x, m, false, 4<<20, got[:4<<20]); err != nil || got[5*512] != 4 || got[0] != 3 {
		t.Errorf("what was written again reads as %d, %v", got[5*512], err)
	}
}

// TestFullPool: a write for which there is no room fails at once with ErrFull; one in place, and a discard, do not.
func TestFullPool(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	m := medium(t, open(t, c, x, rados.Options{}), 12<<20)
	if err := transfer(t, x, m, true, 0, filled(1<<20, 1)); err != nil {
		t.Fatal(err)
	}
	c.SetCapacity(c.Used())
	if err := transfer(t, x, m, true, 4<<20, filled(4096, 1)); !errors.Is(err, block.ErrFull) {
		t.Errorf("a write to a full pool: %v", err)
	}
	if err := transfer(t, x, m, true, 4096, filled(4096, 2)); err != nil {
		t.Errorf("a write in place: %v", err)
	}
	m.(block.Discarder).Discard(0, 4<<20, func(err error) {
		if err != nil {
			t.Errorf("a discard: %v", err)
		}
	})
	x.Run()
	if err := transfer(t, x, m, true, 4<<20, filled(4096, 1)); err != nil {
		t.Errorf("a write where there is room again: %v", err)
	}
}

// TestSlowIsNotDead: an OSD that does not answer keeps operations waiting, without an error, and they end when
// it does. A read that was abandoned meanwhile touches nothing any more.
func TestSlowIsNotDead(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6, OSDs: 1}), &block.Virtual{}
	m := medium(t, open(t, c, x, rados.Options{}), 4<<20)
	if err := transfer(t, x, m, true, 0, filled(8192, 1)); err != nil {
		t.Fatal(err)
	}
	c.Stop(0)
	w, written := begin(m, true, 0, filled(4096, 2))
	r1, read1 := begin(m, false, 0, make([]byte, 8192))
	buf := make([]byte, 8192)
	r2, read2 := begin(m, false, 0, buf)
	x.RunUntil(x.Now() + 600e9)
	if *written || *read1 || *read2 {
		t.Fatal("something ended while the OSD was stopped")
	}
	m.(block.Abandoner).Abandon(r2)
	c.Continue()
	x.RunUntil(x.Now() + 1e9)
	if !*written || !*read1 || !*read2 || w.Err != nil || r1.Err != nil || r2.Err == nil {
		t.Errorf("ended: %v %v, %v %v, %v %v", *written, w.Err, *read1, r1.Err, *read2, r2.Err)
	}
	if got := r1.Vec[0]; got[0] != 2 || got[4096] != 1 || !bytes.Equal(buf, make([]byte, 8192)) {
		t.Error("the reads got something else")
	}
}

// TestWindow: thousands of transfers never have librados wait, which the simulated one does not let happen; those of
// the log are not behind them.
func TestWindow(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{})
	m := medium(t, s, 1<<30)
	r, _, err := s.Region("nvram", block.RegionLayout{State: 512, Counters: 64, Log: 4096})
	if err != nil {
		t.Fatal(err)
	}
	out := 0
	var ios []*block.IO
	big := filled(1<<20, 1)
	for i := range 3000 {
		b := big[:4096]
		if i%20 == 0 {
			b = big
		}
		if i%3 == 0 {
			b = make([]byte, len(b))
		}
		out++
		ios = append(ios, &block.IO{Write: i%3 > 0, Off: uint64(i*331%1000) << 20, N: uint64(len(b)), Vec: [][]byte{b}, Done: func(io *block.IO) {
			if out--; io.Err != nil {
				t.Error(io.Err)
			}
		}})
	}
	m.Submit(ios)
	r.Append(0, filled(512, 9))
	left := -1
	r.Commit(func(err error) {
		if left = out; err != nil {
			t.Error(err)
		}
	})
	x.Run()
	if out != 0 || s.Waited() == 0 || left < 1000 {
		t.Errorf("%d transfers have not ended, %d waited, %d were under way when the log was committed", out, s.Waited(), left)
	}
}

// TestTakeoverFences: when a successor has taken over from an owner that only seemed dead, that one changes nothing
// any more, and all that it begins ends with ErrFenced. Without a blocklist the negative control loses data.
func TestTakeoverFences(t *testing.T) {
	for _, control := range []bool{false, true} {
		c, x := newCluster(simulated.Options{Latency: 1e6, OSDs: 5, NoBlocklist: control}), &block.Virtual{}
		old := open(t, c, x, rados.Options{})
		m := medium(t, old, 64<<20)
		r, _, err := old.Region("nvram", block.RegionLayout{State: 512, Counters: 64, Log: 4096})
		if err != nil {
			t.Fatal(err)
		}
		meta, err := old.Meta()
		if err != nil {
			t.Fatal(err)
		}
		if err := transfer(t, x, m, true, 0, filled(64<<20, 1)); err != nil {
			t.Fatal(err)
		}
		next := open(t, c, x, rados.Options{})
		n := medium(t, next, 64<<20)
		if _, _, err := next.Region("nvram", block.RegionLayout{State: 512, Counters: 64, Log: 4096}); err != nil {
			t.Fatal(err)
		}
		if _, err := next.Meta(); err != nil {
			t.Fatal(err)
		}
		if err := transfer(t, x, n, true, 0, filled(64<<20, 2)); err != nil {
			t.Fatal(err)
		}
		err = transfer(t, x, m, true, 0, filled(64<<20, 3))
		got := make([]byte, 64<<20)
		if err := transfer(t, x, n, false, 0, got); err != nil {
			t.Fatal(err)
		}
		lost := len(got) - bytes.Count(got, []byte{2})
		if control {
			if err != nil || lost == 0 {
				t.Errorf("without a blocklist nothing is lost: the test proves nothing (%v)", err)
			}
		} else if !errors.Is(err, block.ErrFenced) || lost != 0 {
			t.Errorf("the old owner wrote %d bytes: %v", lost, err)
		}
		r.Append(0, filled(512, 9))
		for what, begin := range map[string]func(func(error)){
			"a commit": r.Commit, "a flush": r.Flush,
			"a batch":   func(done func(error)) { meta.Commit([]block.KV{{Key: []byte("k"), Value: []byte("v")}}, done) },
			"an mdisk":  func(done func(error)) { old.MakeMedium("new", 1<<20, done) },
			"a discard": func(done func(error)) { m.(block.Discarder).Discard(0, 4096, done) },
		} {
			failed := errors.New("it never ended")
			begin(func(err error) { failed = err })
			if x.Run(); !errors.Is(failed, block.ErrFenced) && !(control && what == "a discard") {
				t.Errorf("%s of the old owner: %v", what, failed)
			}
		}
		if err := errors.Join(old.Close(), next.Close()); err != nil {
			t.Errorf("to close: %v", err)
		}
	}
}

// TestLostWatchAsks: a watch that was lost fences nobody but who has lost the array.
func TestLostWatchAsks(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	old := open(t, c, x, rados.Options{})
	m := medium(t, old, 4<<20)
	old.client.Disturb()
	x.Run()
	if err := transfer(t, x, m, true, 0, filled(512, 1)); err != nil {
		t.Fatalf("after a watch that was lost: %v", err)
	}
	open(t, c, x, rados.Options{})
	old.client.Disturb()
	x.Run()
	applied := c.Applied
	if err := transfer(t, x, m, true, 0, filled(512, 1)); !errors.Is(err, block.ErrFenced) || c.Applied != applied {
		t.Errorf("who lost the array heard of it and wrote: %v", err)
	}
}

// TestRefused: an array that somebody has, or whose log is elsewhere, is not opened, in one line that says what to do.
func TestRefused(t *testing.T) {
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	layout := block.RegionLayout{State: 512, Counters: 64, Log: 4096}
	home := store.NewMemory(x, store.MemoryOptions{})
	s := open(t, c, x, rados.Options{Log: rados.LogLocal, Local: home, Home: "/data of a", Self: rados.Owner{Host: "a", PID: 12}})
	if _, _, err := s.Region("nvram", layout); err != nil {
		t.Fatal(err)
	}
	_, err := rados.Open(x, c.Connect(x, "array"), rados.Options{Log: rados.LogLocal, Local: home})
	if !errors.Is(err, rados.ErrTaken) || !strings.Contains(err.Error(), "process 12 on a") {
		t.Errorf("an array that is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		opt  rados.Options
		want string
	}{
		{rados.Options{Log: rados.LogReplicated}, "write log: local"},
		{rados.Options{Log: rados.LogLocal, Local: home, Home: "/data of b"}, "start it there"},
	} {
		row.opt.Cookie = "other"
		epoch := headOf(t, c, x).Epoch
		if _, err := rados.Open(x, c.Connect(x, "array"), row.opt); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("a log that is elsewhere: %v", err)
		}
		// It changed nothing, and keeps nobody out.
		if got := headOf(t, c, x).Epoch; got != epoch {
			t.Errorf("a start that was refused raised the epoch from %d to %d", epoch, got)
		}
		s, err := rados.Open(x, c.Connect(x, "array"), rados.Options{Log: rados.LogLocal, Local: store.NewMemory(x, store.MemoryOptions{}), Home: "/data of a"})
		if err != nil {
			t.Fatalf("behind a start that was refused: %v", err)
		}
		s.Close()
	}
}

// headOf reads the head of an array.
func headOf(t *testing.T, c *simulated.Cluster, x *block.Virtual) (h struct{ Epoch int }) {
	t.Helper()
	op := &rados.Op{Object: "array", Steps: []rados.Step{{Kind: rados.Read, Buf: make([]byte, 1<<16)}}}
	carryOutNow(c.Connect(x, "array"), op)
	if err := json.Unmarshal(op.Steps[0].Buf[:op.Steps[0].N], &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// carryOutNow carries out an operation.
func carryOutNow(c *simulated.Client, op *rados.Op) {
	over := false
	op.Done = func(*rados.Op) { over = true }
	c.Submit(op)
	c.Wait(func() bool { return over })
}
