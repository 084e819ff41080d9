package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arraysim/arraysim/internal/hostcache"
	"github.com/arraysim/arraysim/internal/testkit"
	"github.com/arraysim/arraysim/internal/trace"
)

// records is a trace in memory.
type records struct {
	list    []trace.Record
	objects bool
}

func (r *records) Objects() bool { return r.objects }

func (r *records) Next(rec *trace.Record) error {
	if len(r.list) == 0 {
		return io.EOF
	}
	*rec, r.list = r.list[0], r.list[1:]
	return nil
}

func random(t *testing.T, n int) []trace.Record {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	out := make([]trace.Record, n)
	for i := range out {
		out[i] = trace.Record{
			Time: int64(i) * 1000, Op: trace.Op(r.IntN(2)), Disk: uint16(r.IntN(2)),
			Offset: 512 * uint64(20000*r.Float64()*r.Float64()), Length: uint32(512 * (1 + r.IntN(100))),
		}
	}
	return out
}

// slow is a target that takes ten minutes, and nothing else.
type slow struct{ Target }

func (slow) ReadAt([]byte, int64) error {
	time.Sleep(10 * time.Minute)
	return nil
}

// TestLongLatencies are recorded as what they are, however late a request is.
func TestLongLatencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(slow{})
		for _, due := range []time.Duration{0, -100 * time.Hour} {
			if err := w.do(job{op: trace.Read, length: 512, due: time.Now().Add(due)}); err != nil {
				t.Fatal(err)
			}
		}
		h := w.reads.Histogram
		if low, high := time.Duration(h.Min()).Round(10*time.Second), time.Duration(h.Max()).Round(10*time.Minute); low != 10*time.Minute || high != 100*time.Hour+10*time.Minute {
			t.Errorf("latencies from %s to %s", low, high)
		}
		if h.TotalCount() != w.reads.Count || w.reads.Count != 2 {
			t.Errorf("%d latencies of %d requests", h.TotalCount(), w.reads.Count)
		}
	})
}

// TestTableIsWhatOneCacheGives: many caches at once, in batches and in
// parallel, count what each would alone.
func TestTableIsWhatOneCacheGives(t *testing.T) {
	list := random(t, 500)
	cfg := Config{
		Policies: append(hostcache.Policies(), Belady), BlockSizes: []int64{512, 4096, 1 << 16},
		Sizes: []CacheSize{{Bytes: 1 << 20}, {Blocks: 33}, {Bytes: 1 << 30}},
	}
	cells, err := Table(&records{list: list}, cfg)
	if err != nil || len(cells) != len(cfg.Policies)*3*3 {
		t.Fatalf("%d cells, %v", len(cells), err)
	}
	i := 0
	for _, b := range cfg.BlockSizes {
		var keys []hostcache.Key
		var writes []bool
		for _, r := range list {
			for n := r.Offset / uint64(b); n*uint64(b) < r.Offset+uint64(r.Length); n++ {
				keys = append(keys, hostcache.MakeKey(r.Disk, n))
				writes = append(writes, r.Op == trace.Write)
			}
		}
		for _, p := range cfg.Policies {
			for _, size := range cfg.Sizes {
				c := cells[i]
				i++
				capacity := max(size.Blocks, size.Bytes/b)
				var want [4]int64
				count := func(n int, hit bool) {
					at := 0
					if writes[n] {
						at = 2
					}
					want[at]++
					if !hit {
						want[at+1]++
					}
				}
				if p == Belady {
					hostcache.Belady(keys, nil, capacity, count)
				} else {
					ix, err := hostcache.New(hostcache.Config{Policy: p, Capacity: capacity})
					if err != nil {
						t.Fatal(err)
					}
					for n, k := range keys {
						count(n, ix.Access(k, 0))
					}
				}
				if got := [4]int64{c.Reads, c.ReadMisses, c.Writes, c.WriteMisses}; got != want || c.Policy != p || c.BlockSize != b || c.Blocks != capacity {
					t.Errorf("%s, blocks of %d, %v: got %v, want %v", p, b, size, got, want)
				}
			}
		}
	}
}

// TestObjects: a cache of objects holds bytes; one that is too large is passed by.
func TestObjects(t *testing.T) {
	obj := func(id uint64, size uint32) trace.Record { return trace.Record{Offset: id, Length: size} }
	list := []trace.Record{obj(1, 60), obj(1<<63, 30), obj(1, 60), obj(3, 500), obj(4, 40), obj(1<<63, 30), obj(1, 60), obj(3, 500)}
	cells, err := Table(&records{list: list, objects: true}, Config{Policies: []string{"lru", Belady}, Sizes: []CacheSize{{Bytes: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	// 4 takes the room of 2^63, which takes that of 1, which takes that of 4.
	if c := cells[0]; c.Reads != 8 || c.ReadMisses != 7 || c.BytesReferenced != 1280 || c.BytesMissed != 1220 {
		t.Errorf("lru: %+v", c)
	}
	if c := cells[1]; c.ReadMisses > 6 || c.ReadMisses < 5 {
		t.Errorf("belady: %+v", c)
	}
	for _, p := range hostcache.Policies() {
		var big []trace.Record
		r := rand.New(rand.NewPCG(1, 1))
		for range 20000 {
			id := uint64(500 * r.Float64() * r.Float64())
			big = append(big, obj(id, uint32(1+id*7919%5000)))
		}
		c, err := Table(&records{list: big, objects: true}, Config{Policies: []string{p, Belady}, Sizes: []CacheSize{{Bytes: 1}, {Bytes: 300_000}, {Bytes: 1 << 30}}})
		if err != nil {
			t.Fatal(err)
		}
		if c[0].MissRatio < 0.97 || c[2].MissRatio > 0.03 || c[1].MissRatio < c[2].MissRatio || c[1].MissRatio > 0.7 {
			t.Errorf("%s misses %.3f, %.3f, %.3f with 1 byte, 300 kB and room for all", p, c[0].MissRatio, c[1].MissRatio, c[2].MissRatio)
		}
	}
}

func TestTableErrors(t *testing.T) {
	for _, row := range []struct {
		name    string
		cfg     Config
		objects bool
		want    string
	}{
		{"belady by sector", Config{Policies: []string{Belady}, Sizes: []CacheSize{{Blocks: 5}}, BlockSizes: []int64{4096}, Sectors: true}, false, "belady is defined for whole blocks"},
		{"objects by block", Config{Policies: []string{"lru"}, Sizes: []CacheSize{{Blocks: 5}}}, true, "sizes in bytes"},
		{"objects by sector", Config{Policies: []string{"lru"}, Sizes: []CacheSize{{Bytes: 5}}, Sectors: true}, true, "has no sectors"},
		{"sectors in blocks of a sector", Config{Policies: []string{"lru"}, Sizes: []CacheSize{{Blocks: 5}}, BlockSizes: []int64{512}, Sectors: true}, false, "4KiB to 1MiB"},
	} {
		if _, err := Table(&records{objects: row.objects}, row.cfg); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// TestFarBlocks: blocks that a cache cannot distinguish from others are refused, and are no hits.
func TestFarBlocks(t *testing.T) {
	far := []trace.Record{{Offset: 0, Length: 512}, {Offset: 512 << 48, Length: 512}}
	cfg := Config{Policies: []string{"lru"}, Sizes: []CacheSize{{Blocks: 5}}, BlockSizes: []int64{512}}
	if cells, err := Table(&records{list: far}, cfg); err == nil || !strings.Contains(err.Error(), "a request at byte 144115188075855872 lies behind the 281474976710656 blocks of 512 bytes") {
		t.Errorf("%+v, error %v", cells, err)
	}
	cfg.BlockSizes[0] = 1024
	if cells, err := Table(&records{list: far}, cfg); err != nil || cells[0].ReadMisses != 2 {
		t.Errorf("in larger blocks: %+v, error %v", cells, err)
	}
}

// memory is a target that checks what it is asked.
type memory struct {
	mu     sync.Mutex // guards the rest
	data   []byte
	block  int
	fail   bool
	reads  int
	writes int
	closed int
}

func (m *memory) Size() int64    { return int64(len(m.data)) }
func (m *memory) BlockSize() int { return m.block }

func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return nil
}

func (m *memory) check(p []byte, off int64) error {
	if len(p) == 0 || len(p)%m.block != 0 || off%int64(m.block) != 0 || off < 0 || off+int64(len(p)) > m.Size() || len(p) > maxTransfer {
		return fmt.Errorf("request of %d at %d", len(p), off)
	}
	if m.fail {
		return errors.New("broken")
	}
	return nil
}

func (m *memory) ReadAt(p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	return m.check(p, off)
}

func (m *memory) WriteAt(p []byte, off int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	err := m.check(p, off)
	if err == nil {
		copy(m.data[off:], p)
	}
	return err
}

func TestRun(t *testing.T) {
	list := random(t, 3000)
	for _, block := range []int{512, 4096} {
		for _, size := range []int{block, 5 * block, 1 << 20, 32 << 20} {
			m := &memory{data: make([]byte, size), block: block}
			out, err := Run(context.Background(), &records{list: list}, RunConfig{Open: func() (Target, error) { return m, nil }, Depth: 3})
			if err != nil || out.Errors != 0 {
				t.Fatalf("target of %d: %v, %v", size, err, out.FirstError)
			}
			if out.Reads.Count+out.Writes.Count != 3000 || out.Reads.Count != out.Reads.Histogram.TotalCount() || m.closed != 3 {
				t.Errorf("target of %d: %d reads, %d writes, %d closed", size, out.Reads.Count, out.Writes.Count, m.closed)
			}
			if folded := out.Folded > 0; folded != (size < 32<<20) {
				t.Errorf("target of %d: %d folded", size, out.Folded)
			}
		}
	}
	m := &memory{data: make([]byte, 1<<20), block: 512}
	out, err := Run(context.Background(), &records{list: list}, RunConfig{Open: func() (Target, error) { return m, nil }, ReadOnly: true})
	if err != nil || m.writes != 0 || out.SkippedWrites == 0 || out.SkippedWrites+out.Reads.Count != 3000 {
		t.Errorf("read only: %d writes, %d skipped, %v", m.writes, out.SkippedWrites, err)
	}
	m = &memory{data: make([]byte, 1<<20), block: 512, fail: true}
	out, err = Run(context.Background(), &records{list: list}, RunConfig{Open: func() (Target, error) { return m, nil }, Depth: 2})
	if !errors.Is(err, ErrTooManyErrors) || out.Errors < maxErrors || out.Errors > maxErrors+2 || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a broken target: %v after %d", err, out.Errors)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, &records{list: []trace.Record{{Length: 512}, {Length: 512, Time: 1e15}}}, RunConfig{Open: func() (Target, error) { return m, nil }, Speed: 1}); err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := Run(ctx, &records{objects: true}, RunConfig{}); err == nil {
		t.Error("objects were replayed")
	}
}

// TestRunKeepsTime: requests begin when they are due, and what they wait counts.
func TestRunKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no machine is too busy for it
		m := &memory{data: make([]byte, 1<<20), block: 512}
		start := time.Now()
		out, err := Run(context.Background(), &records{list: []trace.Record{{Length: 512}, {Length: 512, Time: 100e6}, {Length: 512, Time: 200e6}}},
			RunConfig{Open: func() (Target, error) { return m, nil }, Speed: 2})
		if took := time.Since(start); err != nil || out.Reads.Count != 3 || took != 100*time.Millisecond {
			t.Errorf("%d reads in %v, %v; the last is due after 100 ms", out.Reads.Count, took, err)
		}
		if out.Late != 0 {
			t.Errorf("%d requests were late, and nothing held them up", out.Late)
		}
	})
}

func TestAdvise(t *testing.T) {
	var list []trace.Record
	for i := range 4000 {
		list = append(list, trace.Record{Offset: uint64(i%100) * 4096, Length: 4096}, trace.Record{Disk: 1, Offset: uint64(i) * 4096, Length: 4096})
	}
	got, err := Advise(&records{list: list}, 100)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d disks, %v", len(got), err)
	}
	if s := got[0].Size(); s < 100*4096 || s > 200*4096 {
		t.Errorf("a loop of 400 KiB should have %d bytes", s)
	}
	if s := got[1].Best(1 << 30).At(1 << 30); s > 0 {
		t.Errorf("a scan hits %g", s)
	}
	// Many disks together are bounded, too: here by the memory of one with 100 regions, which is 8 MiB.
	for disks, refused := range map[int]bool{8: false, 50: true} {
		list = list[:0]
		for i := range disks * 5000 {
			list = append(list, trace.Record{Disk: uint16(i % disks), Offset: uint64(i/disks%10) << 20, Length: 4096})
		}
		_, err := advise(&records{list: list}, 100, 0)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "the first 50 disks of the trace need more than 8.1 MiB of memory; give less --regions than 100") {
			t.Errorf("%d disks: error %v", disks, err)
		}
	}
	if _, err := Advise(&records{objects: true}, 100); err == nil {
		t.Error("advice on objects")
	}
}
