package store

import (
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/block/blocktest"
)

// hdd is a disk for tests: 1 ms and 1 us a KiB, two servers.
var hdd = Service{Parallel: 2, Base: 1e6, Bandwidth: 1024e6}

func TestTimedKeepsTheContract(t *testing.T) {
	t.Run("virtual", func(t *testing.T) {
		stores := map[string]*Memory{}
		blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
			v := &virtual{}
			if old := stores[t.Name()]; old != nil {
				stores[t.Name()] = old.Clone(v)
			} else {
				stores[t.Name()] = NewMemory(v, MemoryOptions{})
			}
			return NewTimed(stores[t.Name()], v, func(string) Service { return hdd }, ReadCache{}, 1), v
		})
	})
	t.Run("live", func(t *testing.T) {
		stores := map[string]*Memory{}
		blocktest.Store(t, func(t *testing.T) (block.Store, blocktest.Driver) {
			l := block.NewLive()
			t.Cleanup(l.Stop)
			if old := stores[t.Name()]; old != nil {
				stores[t.Name()] = old.Clone(l)
			} else {
				stores[t.Name()] = NewMemory(l, MemoryOptions{})
			}
			return NewTimed(stores[t.Name()], l, func(string) Service { return Service{Parallel: 8, Base: 20e3} }, ReadCache{}, 1), live{l}
		})
	})
}

// run submits transfers of 1 KiB and returns when each ended, in microseconds.
func run(t *testing.T, s *Timed, v *block.Virtual, write bool, offs ...uint64) string {
	t.Helper()
	m, err := s.Medium(fmt.Sprintf("m%d", len(s.media)), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return runOn(m, v, write, offs...)
}

func runOn(m block.Medium, v *block.Virtual, write bool, offs ...uint64) string {
	var ends []int64
	start := v.Now()
	var ios []*block.IO
	for _, off := range offs {
		ios = append(ios, &block.IO{Write: write, Off: off, N: 1024, Vec: [][]byte{make([]byte, 1024)}, Done: func(*block.IO) {
			ends = append(ends, (v.Now()-start)/1000)
		}})
	}
	m.Submit(ios)
	v.Run()
	return fmt.Sprint(ends)
}

func TestTimedService(t *testing.T) {
	var v block.Virtual
	s := NewTimed(NewMemory(&v, MemoryOptions{}), &v, func(string) Service { return hdd }, ReadCache{}, 1)
	if got := run(t, s, &v, true, 0, 4096, 8192, 16384, 32768); got != "[1001 1001 2002 2002 3003]" {
		t.Errorf("five transfers on two servers ended at %s", got)
	}
	if !s.Slow("m0", 5000) || s.Slow("nothing", 2000) {
		t.Error("Slow did not find what is there")
	}
	if got := runOn(s.media["m0"], &v, false, 0); got != "[5005]" {
		t.Errorf("on a disk five times slower: %s", got)
	}
	s.SetModel(func(string) Service { return Service{} })
	s.Slow("m0", 1000)
	if got := runOn(s.media["m0"], &v, true, 0, 512); got != "[0 0]" {
		t.Errorf("without a model: %s", got)
	}
}

func TestTimedIsSeeded(t *testing.T) {
	times := func(seed uint64) string {
		var v block.Virtual
		model := func(string) Service { return Service{Base: 1e6, Low: 500, High: 1500} }
		return run(t, NewTimed(NewMemory(&v, MemoryOptions{}), &v, model, ReadCache{}, seed), &v, true, 0, 1024, 2048, 4096)
	}
	first, again, other := times(1), times(1), times(2)
	if first != again || first == other {
		t.Errorf("seed 1: %s and %s, seed 2: %s", first, again, other)
	}
}

func TestReadCache(t *testing.T) {
	var v block.Virtual
	s := NewTimed(NewMemory(&v, MemoryOptions{}), &v, func(string) Service { return Service{Base: 1e6, Parallel: 100} }, ReadCache{Bytes: 2 * chunkBytes, Hit: 10e3}, 1)
	for _, row := range []struct {
		name string
		off  uint64
		want string
	}{
		{"cold", 0, "[1000]"},
		{"the same chunk", 4096, "[10]"},
		{"another", chunkBytes, "[1000]"},
		{"the first is newer than the second now", 0, "[10]"},
		{"a third drops the second", 2 * chunkBytes, "[1000]"},
		{"so the first is there", 0, "[10]"},
		{"and the second is not", chunkBytes, "[1000]"},
		{"a read over two chunks needs both", chunkBytes - 512, "[10]"},
		{"one of which may be gone", 2*chunkBytes - 512, "[1000]"},
	} {
		if len(s.media) == 0 {
			if _, err := s.Medium("m", 1<<30); err != nil {
				t.Fatal(err)
			}
		}
		if got := runOn(s.media["m"], &v, false, row.off); got != row.want {
			t.Errorf("%s: %s, not %s", row.name, got, row.want)
		}
	}
}

// TestSharedDisk puts two mdisks on one disk of two servers: four transfers of both take what four of
// one take.
func TestSharedDisk(t *testing.T) {
	v := &block.Virtual{}
	open := func() (*Timed, block.Medium) {
		s := NewTimed(NewMemory(v, MemoryOptions{Discard: true}), v, func(string) Service { return hdd }, ReadCache{}, 1)
		m, err := s.Medium("m", 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		return s, m
	}
	one, a := open()
	two, b := open()
	if two.Share("none", one, "m") || two.Share("m", one, "none") {
		t.Error("a disk that is not there was shared")
	}
	ends := func() string {
		var out []int64
		start := v.Now()
		for _, m := range []block.Medium{a, b, a, b} {
			m.Submit([]*block.IO{{Write: true, N: 1024, Done: func(*block.IO) { out = append(out, (v.Now()-start)/1000) }}})
		}
		v.Run()
		return fmt.Sprint(out)
	}
	if got := ends(); got != "[1001 1001 1001 1001]" {
		t.Errorf("apart they end at %s us", got)
	}
	if !two.Share("m", one, "m") {
		t.Fatal("they are not shared")
	}
	if got := ends(); got != "[1001 1001 2002 2002]" {
		t.Errorf("shared they end at %s us", got)
	}
}
