//go:build !race

package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// small is the incident's shape in small: a copy with so many commands of 4 MiB under way, and
// two host volumes, one of them with the given rate.
func small(t *testing.T, cache, outstanding, hostMB int, adjust string) *Run {
	t.Helper()
	return runOf(t, smallText, cache, adjust, outstanding, hostMB)
}

const smallText = `
name: small
profile: svc
until: 60s
sample: 10s
series: 1s
arrays:
  - name: a
    cache: %dMiB
    adjust: {policy.caps: [100]%s}
    pools: [{name: p, mdisks: [{kind: hdd, count: 4, size: 100GiB}]}]
    volumes:
      - {name: src, pool: p, size: 32GiB, filled: 32GiB}
      - {name: dst, pool: p, size: 32GiB, filled: 32GiB}
      - {name: big, pool: p, size: 32GiB, filled: 32GiB}
      - {name: other, pool: p, size: 4GiB, filled: 4GiB}
hosts: [{name: h1}, {name: h2}]
jobs:
  - {name: clone, kind: clone, host: h1, volume: src, to: dst, outstanding: %d}
  - {name: big, host: h2, volume: big, bandwidth: %dMiB, io: 64KiB, write: 1, pattern: sequential}
  - {name: other, host: h2, volume: other, bandwidth: 5MiB, io: 16KiB, write: 1}
`

// TestTowerHeight holds W = Q/c - t_read to 12 % in the saturated part. Q is what the copy has
// outstanding, by its job; c its rate; t_read the mean time of the back end's reads, which are the
// copy's alone. W is measured where hosts' writes wait, and does not depend on the cap. It is some
// percent less, because a command's pieces are not all outstanding until its last one is in. With
// fewer pieces of a command under way than Q says the law does not hold: Q does not cancel.
func TestTowerHeight(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of waiting or of work: make test has it")
	}
	heights := map[string]float64{}
	for _, row := range []struct {
		cache, commands int
		adjust          string
		holds           bool
	}{{256, 32, "", true}, {512, 32, "", true}, {256, 16, "", true}, {256, 32, ", copy.outstanding: 1MiB", false}} {
		s, err := Parse(fmt.Appendf(nil, smallText, row.cache, row.adjust, row.commands, 10))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		const from, to = Duration(30e9), Duration(60e9)
		r.Advance(int64(from))
		reads, took := backendReads(r)
		r.Advance(int64(to))
		r.Finish()
		n, sum := backendReads(r)
		w := figureOf(t, r, "pool.p.wait_ms", to, to-from)
		c := figureOf(t, r, "volume.dst.lower_xcopy_mb_s", to, to-from)
		read := float64(sum-took) / float64(n-reads) / 1e6
		want := float64(row.commands)*4/c*1000 - read
		t.Logf("cache %d MiB, %d commands: c %.0f MB/s, a read of the back end %.0f ms, wait %.0f ms, Q/c - read %.0f ms", row.cache, row.commands, c, read, w, want)
		if holds := math.Abs(w-want) <= 0.12*want; holds != row.holds {
			t.Errorf("cache %d MiB, %d commands%s: hosts wait %.0f ms; Q/c - t_read is %.0f ms", row.cache, row.commands, row.adjust, w, want)
		}
		heights[fmt.Sprintf("%d %d%s", row.cache, row.commands, row.adjust)] = w
	}
	if a, b := heights["256 32"], heights["512 32"]; math.Abs(a-b) > 0.1*b {
		t.Errorf("the height depends on the cap: %.0f ms with 256 MiB, %.0f ms with 512 MiB", a, b)
	}
}

// backendReads is how many reads of disks have ended, and what they took, in nanoseconds.
func backendReads(r *Run) (n uint64, nanos int64) {
	now := r.counted()
	for i := range now.samples {
		x := &now.samples[i]
		if k := slices.Index(x.family.Labels, "direction"); x.family.Name == "arraysim_backend_operation_duration_seconds" && x.labels[k] == "read" {
			n, nanos = n+x.histo.Count, nanos+x.histo.Sum
		}
	}
	return n, nanos
}

// TestHogFlips raises a host volume's rate: while it is below the copy's it holds next to
// nothing of the cache, and as soon as it is above it holds most. Only the two rates of the same run
// decide, so nothing here knows the disks.
func TestHogFlips(t *testing.T) {
	if testing.Short() {
		t.Skip("a law of the model, over many runs")
	}
	below, above := 0, 0
	for _, hostMB := range []int{10, 30, 50, 70, 90, 120, 160} {
		r := small(t, 256, 8, hostMB, "")
		host, copied := figureOf(t, r, "volume.big.held_mb", 60e9, 1e9), figureOf(t, r, "volume.dst.held_mb", 60e9, 1e9)
		c := figureOf(t, r, "volume.dst.lower_xcopy_mb_s", 60e9, 30e9)
		t.Logf("host %d MB/s, copy %.0f MB/s: they hold %.0f MB and %.0f MB", hostMB, c, host, copied)
		switch rate := float64(hostMB); {
		case rate < 0.85*c:
			below++
			if host > 0.1*copied {
				t.Errorf("a host with %d MB/s holds %.0f MB, the copy with %.0f MB/s %.0f MB", hostMB, host, c, copied)
			}
		case rate > 1.15*c:
			above++
			if host < copied {
				t.Errorf("a host with %d MB/s holds %.0f MB, the copy with %.0f MB/s %.0f MB", hostMB, host, c, copied)
			}
		}
	}
	if below < 2 || above < 2 {
		t.Errorf("%d rates were below the copy's, %d above: this shows no flip", below, above)
	}
}

// TestThrottledLatency fills a partition by a closed loop: whatever the disks and the size of the
// cache are, a write then takes what is outstanding over the rate of the destage.
func TestThrottledLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("a law of the model, over many runs")
	}
	for _, row := range []struct{ cache, outstanding, io, disks int }{
		{64, 32, 64, 2}, {64, 256, 64, 2}, {256, 128, 64, 2}, {64, 64, 256, 4}, {64, 512, 16, 4},
	} {
		r := runOf(t, `
name: throttled
profile: svc
until: 40s
sample: 10s
series: 1s
arrays:
  - name: a
    cache: %dMiB
    adjust: {policy.caps: [100]}
    pools: [{name: p, mdisks: [{kind: hdd, count: %d, size: 100GiB}]}]
    volumes: [{name: v, pool: p, size: 8GiB, filled: 8GiB}]
hosts: [{name: h}]
jobs: [{name: load, volume: v, io: %dKiB, write: 1, outstanding: %d, pattern: sequential}]
`, row.cache, row.disks, row.io, row.outstanding)
		ms := figureOf(t, r, "volume.v.write_ms", 40e9, 20e9)
		rate := figureOf(t, r, "volume.v.lower_host_mb_s", 40e9, 20e9)
		want := float64(row.outstanding*row.io) / 1024 / rate * 1000
		t.Logf("%d x %d KiB, %d MiB of cache, %d disks: %.1f MB/s, %.1f ms, outstanding/rate %.1f ms", row.outstanding, row.io, row.cache, row.disks, rate, ms, want)
		if full := figureOf(t, r, "pool.p.fullness_mean", 40e9, 20e9); full < 90 {
			t.Errorf("the partition is %.0f %% full: nothing is throttled", full)
		}
		if math.Abs(ms-want) > 0.15*want {
			t.Errorf("%d x %d KiB: a write takes %.1f ms, outstanding/rate is %.1f ms", row.outstanding, row.io, ms, want)
		}
	}
}

// TestCachedReads is the figure of a volume whose reads are always cached (the document's SSD
// volumes): of the height W of a tower it sees the part w that are writes.
func TestCachedReads(t *testing.T) {
	r := runOf(t, `
name: cached
profile: svc
until: 60s
sample: 10s
series: 1s
arrays:
  - name: a
    cache: 256MiB
    adjust: {policy.caps: [100]}
    pools: [{name: p, mdisks: [{kind: hdd, count: 4, size: 100GiB}]}]
    volumes:
      - {name: src, pool: p, size: 32GiB, filled: 32GiB}
      - {name: dst, pool: p, size: 32GiB, filled: 32GiB}
      - {name: w2, pool: p, size: 1GiB, filled: 1GiB}
      - {name: w5, pool: p, size: 1GiB, filled: 1GiB}
      - {name: w8, pool: p, size: 1GiB, filled: 1GiB}
hosts: [{name: h1}, {name: h2}]
jobs:
  - {name: clone, kind: clone, host: h1, volume: src, to: dst, outstanding: 32}
  - {name: w2, host: h2, volume: w2, rate: 200, io: 16KiB, write: 0.2, hot: {reads: 1, span: 256KiB}}
  - {name: w5, host: h2, volume: w5, rate: 200, io: 16KiB, write: 0.5, hot: {reads: 1, span: 256KiB}}
  - {name: w8, host: h2, volume: w8, rate: 200, io: 16KiB, write: 0.8, hot: {reads: 1, span: 256KiB}}
`)
	tower := figureOf(t, r, "pool.p.wait_ms", 60e9, 30e9)
	if tower < 200 {
		t.Fatalf("the tower is %.0f ms high", tower)
	}
	for name, w := range map[string]float64{"w2": 0.2, "w5": 0.5, "w8": 0.8} {
		ms := figureOf(t, r, "volume."+name+".response_ms", 60e9, 30e9)
		t.Logf("w = %.1f: %.0f ms, w x W = %.0f ms", w, ms, w*tower)
		if math.Abs(ms-w*tower) > 0.15*w*tower {
			t.Errorf("a volume with %.0f %% of writes answers in %.0f ms; w x W is %.0f ms", w*100, ms, w*tower)
		}
	}
}

// TestFairAdmission takes the wait from the small volume and leaves the copy its share.
func TestFairAdmission(t *testing.T) {
	fifo := figureOf(t, small(t, 256, 32, 10, ""), "volume.other.write_ms", 60e9, 30e9)
	fair := figureOf(t, small(t, 256, 32, 10, ", policy.admission: fair"), "volume.other.write_ms", 60e9, 30e9)
	if fair > fifo/10 {
		t.Errorf("a small volume's writes take %.1f ms, with one queue %.1f ms", fair, fifo)
	}
}

// TestTypesGainAlike: users who pick their next transaction at random complete types in the shares of the types' weights,
// whatever each of them costs. So faster reads raise all counts alike, though one type is nearly all I/O and another little:
// that one count rises by 145 % and all together by 83 %, as document 002 has it, is no matter of what types are.
func TestTypesGainAlike(t *testing.T) {
	const text = `
name: types
profile: vnx-raid5
until: 20s
arrays:
  - name: a
    cache: 64MiB
    adjust: {cache.read_size: 0, mdisks.fc15k: {parallel: 5, base: %s, bandwidth: 1GiB, low: 500, high: 1500, write: 4000}}
    pools: [{name: p, mdisks: [{kind: fc15k, size: 100GiB}]}]
    volumes: [{name: v, pool: p, size: 4GiB, filled: 4GiB}]
hosts: [{name: h}]
jobs:
  - {name: tx, kind: transactions, volume: v, users: 21, cpus: 8, steps: [{ios: 20, io: 8KiB, span: 4GiB}, {compute: 20ms}],
     types: [{name: few, percent: 10}, {name: some, percent: 100, weight: 2}, {name: many, percent: 190}]}
`
	names, counts := []string{"few", "some", "many"}, [2][]float64{}
	for i, base := range []string{"5.5ms", "300us"} {
		r := runOf(t, text, base)
		for _, n := range names {
			counts[i] = append(counts[i], figureOf(t, r, "job.tx.type."+n+".count", 0, 0))
		}
	}
	sum := func(of []float64) (n float64) {
		for _, x := range of {
			n += x
		}
		return n
	}
	gain := sum(counts[1]) / sum(counts[0])
	t.Logf("counts %v of slow disks, %v of fast ones: %.2f times as many", counts[0], counts[1], gain)
	if gain < 3 {
		t.Fatalf("%.2f times as many: the disks are not the limit", gain)
	}
	for k, n := range names {
		slow, fast := counts[0][k], counts[1][k]
		if chance := math.Sqrt(1/slow + 1/fast); math.Abs(math.Log(fast/slow/gain)) > 4*chance {
			t.Errorf("%s: %.2f times as many, all types %.2f", n, fast/slow, gain)
		}
	}
}
