package array

import (
	"runtime"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestWhoWaitsIsSmall: a WRITE SAME has one block, and no more while it waits.
func TestWhoWaitsIsSmall(t *testing.T) {
	const commands = 256
	r := newRig(t, Options{}, false)
	r.pool("p", PoolSpec{Mdisks: []MdiskSpec{{Name: "m", Size: 64 << 20, Bandwidth: 64 << 10}}}, 0)
	v := r.volume("v", "p", 16<<20, true)
	mustOK(t, r.do(v, write(0, 8)))
	r.clock.Run()
	caw := &block.Request{Op: block.OpCompareWrite, Range: rng(0, 8), Compare: [][]byte{make([]byte, 4096)}, Data: [][]byte{make([]byte, 4096)}}
	locked := r.start(v, caw)
	var all []*block.Request
	for range commands {
		all = append(all, &block.Request{Op: block.OpWriteSame, Range: rng(0, 8), Data: [][]byte{{0: 1, 511: 2}}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	left := r.submitAll(v, all...)
	runtime.ReadMemStats(&after)
	if locked() || *left != commands {
		t.Fatalf("%d of %d commands wait", *left, commands)
	}
	if bytes := (after.TotalAlloc - before.TotalAlloc) / commands; bytes > 4096 {
		t.Errorf("each takes %d bytes", bytes)
	}
	r.clock.Run()
	if got := r.contents(v, 0, 8); *left != 0 || got[0] != 1 || got[7*512+511] != 2 {
		t.Errorf("%d are left; what is there begins with %d and ends with %d", *left, got[0], got[7*512+511])
	}
	r.check()
}

// TestPatternsOfSeveralCommands: pieces of commands with other patterns, and of other lengths, come between.
func TestPatternsOfSeveralCommands(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 64 << 20}, false)
	r.pool("p", PoolSpec{}, 64<<20)
	v := r.volume("v", "p", 32<<20, true)
	var all []*block.Request
	for i := range uint64(8) {
		block1 := make([]byte, []int{512, 4096}[i%2])
		fillStamp(block1[:512], 7+i/4)
		q := &block.Request{Op: block.OpWriteSame, Range: rng(i*8000, 8000), Data: [][]byte{block1[:100], block1[100:]}}
		all = append(all, q)
	}
	left := r.submitAll(v, all...)
	r.clock.Run()
	if *left != 0 {
		t.Fatalf("%d never ended", *left)
	}
	for i, q := range all {
		got := r.contents(v, q.Range.Start, q.Range.Count)
		for s := range q.Range.Count {
			want := uint64(7 + i/4)
			if i%2 == 1 && s%8 != 0 {
				want = 0
			}
			if le.Uint64(got[s*512:]) != want || le.Uint64(got[s*512+504:]) != want {
				t.Fatalf("command %d, sector %d: %d, not %d", i, s, le.Uint64(got[s*512:]), want)
			}
		}
	}
	r.check()
}

// contents returns what a volume has in a range.
func (r *rig) contents(v *Volume, start, count uint64) []byte {
	r.t.Helper()
	got := make([]byte, count*block.SectorSize)
	mustOK(r.t, r.do(v, &block.Request{Op: block.OpRead, Range: rng(start, count), Data: [][]byte{got}}))
	return got
}
