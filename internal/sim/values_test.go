package sim

import (
	"io"
	"math"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/stats"
	"github.com/arraysim/arraysim/internal/trace"
)

// TestFiguresAfterTheEnd: the rates of a job do not change any more when it is over, whatever its host sends then.
func TestFiguresAfterTheEnd(t *testing.T) {
	r, err := New(parsed(t, strings.Replace(inSmall("{name: j, volume: v, io: 4KiB, write: 1, outstanding: 500, think: 1ms, for: 1s}, {name: later, volume: v, io: 64KiB, write: 1, rate: 1000, at: 1s}", ""), "all-flash", "vnx-raid5", 1)))
	if err != nil {
		t.Fatal(err)
	}
	figures := func() (all [4]float64) {
		for i, name := range []string{"iops", "mb_s", "gb_s", "wire_mb_s"} {
			all[i] = figureOf(t, r, "job.j."+name, 0, 0)
		}
		return all
	}
	r.Advance(1e9)
	before, sent := figures(), figureOf(t, r, "host.h.wire_mb_s", 0, 0)
	r.Advance(3e9)
	if after := figures(); after != before || before[0] == 0 || math.Abs(before[3]/before[1]-1) > 0.3 {
		t.Errorf("iops, mb_s, gb_s, wire_mb_s are %v at its end, and %v later", before, after)
	}
	if sent <= 0 || sent > before[3]*1.1 {
		t.Errorf("the host sent %g MB/s at 1 s, its job %g", sent, before[3])
	}
}

// manyReads is a trace of so many reads, one each millisecond.
type manyReads struct{ n, count int64 }

func (m *manyReads) Next(r *trace.Record) error {
	if m.n == m.count {
		return io.EOF
	}
	*r = trace.Record{Time: m.n * 1e6, Length: 4096}
	m.n++
	return nil
}

// TestAfterOfOperations: figures of the time in which a disk has no new blocks are there for all kinds of jobs.
func TestAfterOfOperations(t *testing.T) {
	s := parsed(t, inSmall("{name: r, kind: trace, volume: v, at: 1s, trace: {speed: 1}}", ""))
	s.Replay = &manyReads{count: 1000}
	replayed, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	// The last one begins behind 999 ms.
	if n := figureOf(t, replayed, "job.r.after.iops", 0, 0); n < 1000 || n > 1001.1 {
		t.Errorf("%g reads a second of a trace", n)
	}
	r := runOf(t, "%s", inSmall("{name: z, kind: zero, volume: v, at: 1s}", ""))
	all, after := figureOf(t, r, "job.z.iops", 0, 0), figureOf(t, r, "job.z.after.iops", 0, 0)
	if all <= 0 || math.Abs(after/all-1) > 1e-6 {
		t.Errorf("%g operations a second, %g once the disk has no new blocks", all, after)
	}
}

// TestFiguresOfPools: before a pool has a whole second there are none; they were 0, so that a bound from above held.
func TestFiguresOfPools(t *testing.T) {
	const job = "{name: j, volume: v, io: 4KiB, write: 1, rate: 1000}"
	short := runOf(t, "%s", strings.Replace(inSmall(job, ""), "until: 3s", "until: 900ms", 1))
	added := runOf(t, "%s", strings.Replace(inSmall(job, ", faults: [{at: 1500ms, kind: pool-add, new: {name: q, mdisks: [{size: 1GiB}]}}, {at: 2500ms, kind: pool-remove, pool: q}]"),
		"until: 3s", "until: 5s", 1))
	for _, name := range []string{"fullness", "fullness_mean", "fullness_max", "limit_mb", "used_mb", "tower_seconds", "iops"} {
		if v, err := short.Value("pool.p."+name, 0, 0); err == nil {
			t.Errorf("in a run of 0.9 s, pool.p.%s is %g", name, v)
		}
		if v, err := added.Value("pool.q."+name, 1e9, 1e9); err == nil {
			t.Errorf("before the pool is there, pool.q.%s is %g", name, v)
		}
		if v, err := added.Value("pool.q."+name, 5e9, 2e9); err == nil {
			t.Errorf("when the pool has gone, pool.q.%s is %g", name, v)
		}
		figureOf(t, added, "pool.q."+name, 2e9, 1e9)
		figureOf(t, added, "pool.q."+name, 0, 0)
		figureOf(t, added, "pool.p."+name, 1e9, 1e9)
	}
	if json := string(short.JSON()); !strings.Contains(json, `"pool.p.iops": null`) || !strings.Contains(json, `"pool.p.fullness_max": null`) {
		t.Errorf("the figures of a run of 0.9 s are %s", json)
	}
}

// TestShortLatencies: the percentiles of short times are within 1 %, too.
func TestShortLatencies(t *testing.T) {
	for wait := int64(1000); wait < 1e6; wait += wait / 7 {
		h := newLatencies(2)
		record(h, wait)
		if got := stats.Percentile(h, 50); math.Abs(float64(got-wait)) > float64(wait)/100 {
			t.Errorf("a time of %d ns is kept as %d", wait, got)
		}
	}
}

// TestZeroByWrites: zeroing without offload ends at its time, and has a rate.
func TestZeroByWrites(t *testing.T) {
	const all = "{name: z, kind: zero, volume: v, size: 1GiB"
	text := strings.NewReplacer("size: 64MiB", "size: 1GiB", "{name: h}", "{name: h, vaai: {HardwareAcceleratedInit: false}, mover: {size: 64KiB, outstanding: 1}}")
	whole := runOf(t, "%s", strings.Replace(text.Replace(inSmall(all+"}", "")), "until: 3s", "until: 1m", 1))
	seconds := figureOf(t, whole, "job.z.seconds", 0, 0)
	if n, want := figureOf(t, whole, "job.z.iops", 0, 0), 16/seconds; math.Abs(n/want-1) > 1e-6 {
		t.Errorf("%g pieces of 64 MiB a second, want %g", n, want)
	}
	part := runOf(t, "%s", strings.Replace(text.Replace(inSmall(all+", for: 500ms}", "")), "until: 3s", "until: 1m", 1))
	if n, want := figureOf(t, part, "job.z.bytes", 0, 0), 0.5/seconds*(1<<30)+64<<20; n > want {
		t.Errorf("%g MiB of 1024 in the first half second of %g s", n/mb, seconds)
	}
}

func parsed(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
