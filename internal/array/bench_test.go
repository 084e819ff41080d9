package array

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// scramble is a bijection of [0, 1<<bits): the order of a random fill that visits
// every block once.
func scramble(x uint64, bits uint) uint64 {
	m := uint64(1)<<bits - 1
	for range 3 {
		x = x * 0x9E3779B97F4A7C15 & m
		x ^= x >> (bits/2 + 1)
	}
	return x * 0xD1B54A32D192ED03 & m
}

// fillRandomly writes every 4 KiB block of a volume of 1<<bits blocks once, in random
// order, and calls sample now and then.
func fillRandomly(r *rig, v *Volume, bits uint, sample func(done float64)) {
	const batch = 64
	reqs := make([]block.Request, batch)
	ptrs := make([]*block.Request, batch)
	left := 0
	total := uint64(1) << bits
	for at := uint64(0); at < total; at += batch {
		for i := range reqs {
			reqs[i] = block.Request{Op: block.OpWrite, Range: rng(scramble(at+uint64(i), bits)*8, 8), Done: func(*block.Request) { left-- }}
			ptrs[i] = &reqs[i]
		}
		left = batch
		v.Submit(ptrs)
		for left > 0 && r.clock.Step() {
		}
		if sample != nil && at%(total/64) == 0 {
			sample(float64(at) / float64(total))
		}
	}
	r.clock.Run()
}

// BenchmarkMapFill writes a volume 4 KiB-wise at random until every block is
// written, over the store without payload, and reports the memory that the maps take,
// extrapolated to 1 TiB: at its peak and in the end.
func BenchmarkMapFill(b *testing.B) {
	const bits = 21 // 8 GiB
	for b.Loop() {
		r := newRig(b, Options{CacheBytes: 64 << 20}, true)
		r.pool("p", PoolSpec{}, 10<<30)
		v := r.volume("v", "p", 1<<bits*4096, true)
		scale := float64(1<<28) / float64(1<<bits) / (1 << 30)
		var peakMap uint64
		var peakHeap, base uint64
		var ms runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&ms)
		base = ms.HeapAlloc
		fillRandomly(r, v, bits, func(float64) {
			peakMap = max(peakMap, r.a.MapBytes())
			runtime.ReadMemStats(&ms)
			peakHeap = max(peakHeap, ms.HeapAlloc-min(base, ms.HeapAlloc))
		})
		runtime.GC()
		runtime.ReadMemStats(&ms)
		b.ReportMetric(float64(peakMap)*scale, "GiB/TiB-peak")
		b.ReportMetric(float64(peakHeap)*scale, "GiB/TiB-heap-peak")
		b.ReportMetric(float64(r.a.MapBytes())*scale, "GiB/TiB-final")
		b.ReportMetric(float64(ms.HeapAlloc-min(base, ms.HeapAlloc))*scale, "GiB/TiB-heap-final")
		b.ReportMetric(float64(entriesOf(v)), "entries")
		if n := len(r.a.Check(false).Problems); n > 0 {
			b.Fatal(r.a.Check(false).Problems[0])
		}
	}
}

// BenchmarkWriteSame zeroes 1 MiB after 1 MiB of a volume of 1 TiB, round and round.
func BenchmarkWriteSame(b *testing.B) {
	r := newRig(b, Options{CacheBytes: 64 << 20}, true)
	r.pool("p", PoolSpec{}, 10<<30)
	v := r.volume("v", "p", 1<<40, true)
	const batch = 32
	reqs := make([]block.Request, batch)
	ptrs := make([]*block.Request, batch)
	left, at := 0, uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for i := range reqs {
			reqs[i] = block.Request{Op: block.OpWriteSame, Range: rng(at%(1<<20)*2048, 2048), Done: func(*block.Request) { left-- }}
			ptrs[i] = &reqs[i]
			at++
		}
		left = batch
		v.Submit(ptrs)
		for left > 0 && r.clock.Step() {
		}
	}
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "WS/s")
}

// BenchmarkWriteSameOverEntries zeroes a whole volume that has millions of entries
// and reports how long the command takes, and the longest step of the clean-up: what a
// command to another volume waits at the most.
func BenchmarkWriteSameOverEntries(b *testing.B) {
	const windows = 5 << 20
	for b.Loop() {
		r := newRig(b, Options{CacheBytes: 64 << 20}, true)
		r.pool("p", PoolSpec{}, 400<<30)
		v := r.volume("v", "p", 1<<40, true)
		w := r.volume("w", "p", 1<<30, true)
		// Every second window of the volume, so that each is an entry of its own and so is the hole.
		reqs := make([]block.Request, 64)
		ptrs := make([]*block.Request, len(reqs))
		left := 0
		for at := uint64(0); at < windows; at += uint64(len(reqs)) {
			for i := range reqs {
				reqs[i] = block.Request{Op: block.OpWrite, Range: rng((at+uint64(i))*256, 8), Done: func(*block.Request) { left-- }}
				ptrs[i] = &reqs[i]
			}
			left = len(reqs)
			v.Submit(ptrs)
			for left > 0 && r.clock.Step() {
			}
		}
		entries := entriesOf(v)
		start := time.Now()
		r.do(v, &block.Request{Op: block.OpWriteSame, Range: rng(0, 1<<40/512)})
		took := time.Since(start)
		worst := time.Duration(0)
		for r.a.arena.HasGarbage() { // a command of another volume waits for one step at the most
			start := time.Now()
			r.clock.Step()
			worst = max(worst, time.Since(start))
		}
		r.do(w, &block.Request{Op: block.OpWrite, Range: rng(0, 8)})
		r.clock.Run()
		b.ReportMetric(float64(entries), "entries-before")
		b.ReportMetric(float64(entriesOf(v)), "entries-after")
		b.ReportMetric(took.Seconds()*1e3, "ms-WS")
		b.ReportMetric(worst.Seconds()*1e3, "ms-worst-step")
	}
}

// BenchmarkCheck checks an array of half a million data windows: what a check of a
// live array holds its commands up for.
func BenchmarkCheck(b *testing.B) {
	r := newRig(b, Options{CacheBytes: 64 << 20}, true)
	r.pool("p", PoolSpec{}, 40<<30)
	v := r.volume("v", "p", 32<<30, true)
	for at := uint64(0); at < 32<<21; at += 512 {
		r.do(v, &block.Request{Op: block.OpWrite, Range: rng(at, 512)})
	}
	r.clock.Run()
	for b.Loop() {
		if rep := r.a.Check(false); len(rep.Problems) > 0 {
			b.Fatal(rep.Problems[0])
		}
	}
}

// BenchmarkHostWrites is the firmware's own cost of a 4 KiB random write in virtual
// time, destage included, over a store that keeps no payload.
func BenchmarkHostWrites(b *testing.B) {
	r := newRig(b, Options{CacheBytes: 256 << 20}, true)
	r.pool("p", PoolSpec{}, 64<<30)
	v := r.volume("v", "p", 16<<30, true)
	rnd := rand.New(rand.NewPCG(1, 1))
	q := &block.Request{Op: block.OpWrite, Data: [][]byte{make([]byte, 4096)}}
	left := 0
	q.Done = func(q *block.Request) {
		if left--; left > 0 {
			q.Range = rng(rnd.Uint64N(1<<22)*8, 8)
			v.Submit([]*block.Request{q})
		}
	}
	b.ReportAllocs()
	left = 300000
	q.Range = rng(0, 8)
	v.Submit([]*block.Request{q})
	r.clock.Run()
	b.ResetTimer()
	left = b.N
	v.Submit([]*block.Request{q})
	r.clock.Run()
}
