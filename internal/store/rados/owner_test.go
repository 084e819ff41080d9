package rados_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/simulated"
)

// stranger takes the lock of an array and does nothing else: a start that died before it noted itself, or one that has
// just begun.
func stranger(t *testing.T, c *simulated.Cluster, x *block.Virtual, cookie string) *simulated.Client {
	t.Helper()
	cl := c.Connect(x, "array")
	if err := cl.Lock("array", "owner", cookie); err != nil {
		t.Fatal(err)
	}
	return cl
}

// only takes one process for dead.
func only(pid int) func(rados.Owner) bool { return func(o rados.Owner) bool { return o.PID == pid } }

// TestLockSaysWhoHasIt: who holds the lock is who the lock says, and not who the head had noted: one that died with
// the lock is replaced, one that lives is not, and nobody who does not say what he is.
func TestLockSaysWhoHasIt(t *testing.T) {
	for name, row := range map[string]struct {
		cookie string
		dead   func(rados.Owner) bool
		want   string // of the error; "": it is replaced
	}{
		"dead before it noted itself":     {`x {"host":"b","pid":7}`, only(7), ""},
		"alive beside a dead predecessor": {`x {"host":"b","pid":7}`, only(1), "process 7 on b"},
		"of an empty owner":               {`x {}`, dead, "does not say what it is"},
		"of another program":              {"auto 123", dead, "does not say what it is"},
	} {
		t.Run(name, func(t *testing.T) {
			c, x := newCluster(simulated.Options{}), &block.Virtual{}
			first := open(t, c, x, rados.Options{})
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			other := stranger(t, c, x, row.cookie)
			cl := c.Connect(x, "array")
			s, err := rados.Open(x, cl, rados.Options{Log: rados.LogReplicated, Cookie: "y", Self: rados.Owner{Host: "a", PID: 2}, Dead: row.dead})
			if row.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := other.LatestMap(); !errors.Is(err, block.ErrFenced) {
					t.Errorf("who was replaced is not fenced: %v", err)
				}
				s.Close()
				return
			}
			if !errors.Is(err, rados.ErrTaken) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("not refused: %v", err)
			}
			if err := other.LatestMap(); err != nil {
				t.Errorf("somebody who may live was fenced: %v", err)
			}
		})
	}
}

// TestTwoTakers: two that find the same dead owner at the same time never fence each other: one has the array, the other
// is refused.
func TestTwoTakers(t *testing.T) {
	for seed := range uint64(200) {
		c, v := newCluster(simulated.Options{Latency: 1e6, Tail: int(seed % 100)}), &block.Virtual{}
		stranger(t, c, v, `x {"host":"here","pid":1}`)
		var stores [2]*rados.Store
		var errs [2]error
		var clients [2]*simulated.Client
		for i := range stores {
			p := simulated.NewProcess(v)
			clients[i] = c.Connect(p, "array")
			v.At(int64(seed)*1e4*int64(i), func() {
				p.Go(func() {
					stores[i], errs[i] = rados.Open(p, clients[i], rados.Options{Log: rados.LogReplicated, Cookie: string(rune('a' + i)), Dead: only(1),
						Self: rados.Owner{Host: "here", PID: 2 + i}})
				})
			})
		}
		v.RunUntil(60e9)
		won := 0
		for i := range stores {
			if errs[i] == nil {
				won++
				if err := clients[i].LatestMap(); stores[i] == nil || err != nil {
					t.Fatalf("seed %d: taker %d: %v, %v", seed, i, stores[i], err)
				}
			} else if !errors.Is(errs[i], rados.ErrTaken) {
				t.Fatalf("seed %d: taker %d: %v", seed, i, errs[i])
			}
		}
		if won != 1 {
			t.Fatalf("seed %d: %d of two takers have the array: %v", seed, won, errs)
		}
	}
}

// TestAnotherPool: a data folder that belongs to an array is refused where there is none, or another one.
func TestAnotherPool(t *testing.T) {
	c, x := newCluster(simulated.Options{}), &block.Virtual{}
	s := open(t, c, x, rados.Options{NewID: "one"})
	if s.ID() != "one" {
		t.Fatalf("the array is %q", s.ID())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]string{"array": "it is the array one", "arary": "there is none"} {
		_, err := rados.Open(x, c.Connect(x, namespace), rados.Options{Log: rados.LogReplicated, ID: "two", Cookie: "z"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("in %s: %v", namespace, err)
		}
	}
	if list := c.Objects("arary"); len(list) > 0 {
		t.Errorf("a refused start made %v", list)
	}
	if s, err := rados.Open(x, c.Connect(x, "array"), rados.Options{Log: rados.LogReplicated, ID: "one", Cookie: "z"}); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
}

// TestLostIsHeardOf: an owner that was fenced hears of it once, and does not serve from then on.
func TestLostIsHeardOf(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	heard := 0
	old := open(t, c, x, rados.Options{Lost: func(err error) {
		if heard++; !errors.Is(err, block.ErrFenced) {
			t.Error(err)
		}
	}})
	m := medium(t, old, 4<<20)
	if !old.Serving() {
		t.Error("an owner does not serve")
	}
	open(t, c, x, rados.Options{})
	old.client.Disturb()
	x.Run()
	if err := transfer(t, x, m, true, 0, filled(512, 1)); !errors.Is(err, block.ErrFenced) {
		t.Error(err)
	}
	if heard != 1 || old.Serving() {
		t.Errorf("it heard %d times that it is fenced, and serves: %v", heard, old.Serving())
	}
}

// TestFullStop: in a pool that is full a start and a stop end within their patience, with an error that says so.
func TestFullStop(t *testing.T) {
	c, x := newCluster(simulated.Options{Latency: 1e6}), &block.Virtual{}
	s := open(t, c, x, rados.Options{Patience: 5e9})
	meta, err := s.Meta()
	if err != nil {
		t.Fatal(err)
	}
	c.SetCapacity(1)
	failed := errors.New("it has not ended")
	meta.Commit([]block.KV{{Key: []byte("k"), Value: make([]byte, 1<<20)}}, func(err error) { failed = err })
	if x.RunUntil(x.Now() + 600e9); errors.Is(failed, block.ErrFull) {
		t.Fatal("while an array runs its metadata wait for room")
	}
	s.StopWaiting()
	if x.RunUntil(x.Now() + 11e9); !errors.Is(failed, block.ErrFull) {
		t.Errorf("a commit of an array that stops: %v", failed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = open(t, c, x, rados.Options{Patience: 5e9})
	if meta, err = s.Meta(); err != nil {
		t.Fatal(err)
	}
	if err := meta.CommitNow([]block.KV{{Key: []byte("k"), Value: make([]byte, 1<<20)}}); !errors.Is(err, block.ErrFull) {
		t.Errorf("a commit of a start: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
