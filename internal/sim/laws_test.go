package sim

import (
	"fmt"
	"math"
	"testing"
)

// small is the incident's shape in small: a copy with so many commands of 4 MiB under way, and
// two host volumes, one of them with the given rate.
func small(t *testing.T, cache, outstanding, hostMB int, adjust string) *Run {
	t.Helper()
	s, err := Parse(fmt.Appendf(nil, `
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
`, cache, adjust, outstanding, hostMB))
	if err != nil {
		t.Fatal(err)
	}
	r, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func figureOf(t *testing.T, r *Run, name string, at, over Duration) float64 {
	t.Helper()
	v, err := r.Value(name, at, over)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTowerHeight holds W = Q/c - t_read to 15 % in the saturated part, where Q is what the copy
// has outstanding, c its rate, and t_read the mean time of its source reads; W does not depend
// on the cap.
func TestTowerHeight(t *testing.T) {
	heights := map[int]float64{}
	for _, cache := range []int{256, 512} {
		r := small(t, cache, 32, 10, "")
		const from, to = Duration(30e9), Duration(60e9)
		w := figureOf(t, r, "pool.p.wait_ms", to, to-from)
		c := figureOf(t, r, "volume.dst.lower_xcopy_mb_s", to, to-from)
		read := copyReadMS(r)
		want := 32*4/c*1000 - read
		t.Logf("cache %d MiB: c %.0f MB/s, read %.0f ms, wait %.0f ms, Q/c - read %.0f ms", cache, c, read, w, want)
		if math.Abs(w-want) > 0.15*want {
			t.Errorf("cache %d MiB: hosts wait %.0f ms; Q/c - t_read is %.0f ms", cache, w, want)
		}
		heights[cache] = w
	}
	if a, b := heights[256], heights[512]; math.Abs(a-b) > 0.1*b {
		t.Errorf("the height depends on the cap: %.0f ms with 256 MiB, %.0f ms with 512 MiB", a, b)
	}
}

// copyReadMS is how long the pieces of the copy that are not waiting for the cache are away, by
// Little's law: what is outstanding less what waits, over the copy's rate.
func copyReadMS(r *Run) float64 {
	waiting, err := r.metric("cache_admission_waiting_bytes,origin=xcopy")
	if err != nil {
		return 0
	}
	c, _ := r.volumeValue(1, "lower_xcopy_mb_s", 30e9, 60e9)
	return (float64(32*4) - waiting/mb) / c * 1000
}

// TestHogFlips raises a host volume's rate: below the copy's share it holds next to nothing of
// the cache, above it holds most.
func TestHogFlips(t *testing.T) {
	share := func(hostMB int) (host, copied float64) {
		r := small(t, 256, 8, hostMB, "")
		return figureOf(t, r, "volume.big.held_mb", 60e9, 1e9), figureOf(t, r, "volume.dst.held_mb", 60e9, 1e9)
	}
	if host, copied := share(10); host > 0.1*copied {
		t.Errorf("at 10 MB/s the host's volume holds %.0f MB, the copy's %.0f", host, copied)
	}
	if host, copied := share(150); host < copied {
		t.Errorf("at 150 MB/s the host's volume holds %.0f MB, the copy's %.0f", host, copied)
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
