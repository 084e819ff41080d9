package array

import (
	"bytes"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
)

// TestCopiesOverMediaThatCompleteAtOnce copies over both mdisks of a pool, several
// copies and reads in one batch, over media that complete inside Submit.
func TestCopiesOverMediaThatCompleteAtOnce(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 2 << 20}, false)
	r.pool("p", PoolSpec{CopyData: true}, 256<<20)
	const n = 16 << 11
	src := r.volume("src", "p", n*512, true)
	data := make([]byte, n*512)
	for s := range n {
		fillStamp(data[s*512:(s+1)*512], uint64(s)<<8|1)
	}
	mustOK(t, r.do(src, &block.Request{Op: block.OpWrite, Range: rng(0, n), Data: [][]byte{data}}))
	r.clock.Run()
	var ended int
	done := func(q *block.Request) {
		mustOK(t, q.Status)
		ended++
	}
	var copies []*Volume
	for _, name := range []string{"a", "b", "c"} {
		w := r.volume(name, "p", n*512, true)
		copies = append(copies, w)
		h := &block.Request{Op: block.OpHold, Ranges: []block.Range{rng(0, n)}}
		mustOK(t, r.do(src, h))
		var batch []*block.Request
		for at := uint64(0); at < n; at += n / 4 {
			batch = append(batch, &block.Request{Op: block.OpPlace, Range: rng(at, n/4), Ref: h.Ref, RefOffset: at, Origin: block.OriginXCopy, Done: done})
		}
		w.Submit(batch)
	}
	var reads []*block.Request
	for at := uint64(0); at+20000 <= n; at += 3000 {
		reads = append(reads, &block.Request{Op: block.OpRead, Range: rng(at, 20000), Data: [][]byte{make([]byte, 20000*512)}, Done: done})
	}
	src.Submit(reads)
	r.clock.Run()
	if ended != 12+len(reads) {
		t.Fatalf("%d commands ended", ended)
	}
	for _, q := range reads {
		if !bytes.Equal(q.Data[0], data[q.Range.Start*512:q.Range.End()*512]) {
			t.Errorf("the read of %v is wrong", q.Range)
		}
	}
	got := make([]byte, len(data))
	for _, w := range copies {
		mustOK(t, r.do(w, &block.Request{Op: block.OpRead, Range: rng(0, n), Data: [][]byte{got}}))
		if !bytes.Equal(got, data) {
			t.Errorf("copy %s is wrong", w.Name())
		}
	}
}
