package sim

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
)

var lawsSeed = flag.Uint64("laws.seed", 1, "seed of the loops that TestThrottleLaws draws")

// throttled is a closed loop of n writes through a write-back cache whose destager has so many slots.
func throttled(t *testing.T, n, slots int, san, write Duration, areaMB, threshold, gain int) *Run {
	t.Helper()
	return runOf(t, `
name: throttled
profile: all-flash
until: 14s
sample: 2s
arrays:
  - name: a
    cache: 64MiB
    adjust: {cache.write: %s}
    pools: [{name: p, mdisks: [{size: 100GiB}]}]
    volumes: [{name: v, pool: p, size: 64GiB, filled: 64GiB}]
hosts:
  - name: h
    flash: {channels: 64, read: 50us, write: %s, bandwidth: 100GB}
    destage_slots: %d
    cache: [{volume: v, policy: write_back, size: 512MiB, block: 4KiB, eviction: lru, area: %dMiB, threshold: %d, gain: %d, destage: 4KiB}]
jobs: [{name: load, volume: v, outstanding: %d, io: 4KiB, write: 1, for: 12s}]
`, san, write, slots, areaMB, threshold, gain, n)
}

// TestThrottleLaws holds random closed loops to the laws of the throttle. While it is below the
// threshold the occupancy rises by what comes in less what is destaged. Then writes come as fast as they
// are destaged, so that by Little's law each takes the number outstanding over the rate of destages, whatever
// the controller is; the controller finds the occupancy at which it injects what is missing.
func TestThrottleLaws(t *testing.T) {
	seed := *lawsSeed
	t.Logf("run again by: go test ./internal/sim -run '%s' -laws.seed=%d", t.Name(), seed)
	rng := newRand(seed, "throttle laws")
	for range 3 {
		slots := int(4 + rng.N(8))
		san := Duration(1_000_000 + rng.N(2_000_000))
		write := Duration(100_000 + rng.N(100_000))
		// A little to several times more than what can be destaged.
		n := int(float64(slots)*float64(write)/float64(san)) + 2 + int(rng.N(6))
		threshold, gain := int(500+rng.N(350)), int(500+rng.N(1000))
		areaMB := 16
		r := throttled(t, n, slots, san, write, areaMB, threshold, gain)
		v := func(name string, at, over Duration) float64 { return figureOf(t, r, "cache.v."+name, at, over) }
		const from, to = Duration(8e9), Duration(12e9)
		name := fmt.Sprintf("%d outstanding, %d slots of %s, flash %s, threshold %d, gain %d", n, slots, san, write, threshold, gain)
		rate, wait, flash, below := v("destage_iops", to, to-from), v("effective_write_ms", to, to-from), v("local_write_ms", to, to-from), v("destage_ms", to, to-from)
		if v("occupancy_max", to, to) <= float64(threshold)/10 {
			t.Errorf("%s: it never was above the threshold", name)
			continue
		}
		if want := float64(n) / rate * 1e3; math.Abs(wait-want) > 0.03*want {
			t.Errorf("%s: a write takes %.3f ms; outstanding over destage rate is %.3f", name, wait, want)
		}
		if in := v("effective_write_iops", to, to-from); math.Abs(in-rate) > 0.03*rate {
			t.Errorf("%s: %.0f writes a second come in, %.0f are destaged", name, in, rate)
		}
		// e/(1-e) = (N/D - flash) / (k SAN)
		x := (wait - flash) / (float64(gain) / 1000 * below)
		want := float64(threshold)/10 + (100-float64(threshold)/10)*x/(1+x)
		if occ := v("occupancy", to, 1e9); math.Abs(occ-want) > 2 {
			t.Errorf("%s: the area is %.1f %% full; the controller's law says %.1f", name, occ, want)
		}
		if p := v("passed", to, to); p != 0 {
			t.Errorf("%s: %.1f writes a second went past the flash", name, p)
		}
		if after := v("occupancy", 14e9, 1e9); after > 0 && after >= float64(threshold)/10 {
			t.Errorf("%s: 2 s after the load the area is %.1f %% full", name, after)
		}
	}
}

// TestAreaFills is the law below the threshold, in an area that takes the whole burst.
func TestAreaFills(t *testing.T) {
	r := throttled(t, 4, 4, 2_000_000, 400_000, 448, 900, 1000)
	v := func(name string, at, over Duration) float64 { return figureOf(t, r, "cache.v."+name, at, over) }
	in, out := v("effective_write_iops", 10e9, 8e9), v("destage_iops", 10e9, 8e9)
	if in < 1.2*out {
		t.Fatalf("%.0f writes a second and %.0f destages: it should not keep up", in, out)
	}
	area := 448. * mb / 4096
	rise := (v("occupancy", 10e9, 1e9) - v("occupancy", 2e9, 1e9)) / 100 * area / 8
	if want := in - out; math.Abs(rise-want) > 0.03*want {
		t.Errorf("the area gains %.0f writes a second; %.0f come in and %.0f go", rise, in, out)
	}
	if a, b := v("effective_write_ms", 10e9, 8e9), v("local_write_ms", 10e9, 8e9); a != b {
		t.Errorf("below the threshold a write takes %.3f ms, the flash %.3f", a, b)
	}
}

const cachedScenario = `
name: cached
profile: all-flash
until: 4s
sample: 2s
arrays:
  - name: a
    cache: 64MiB
    pools: [{name: p, mdisks: [{size: 100GiB}]}]
    volumes:
      - {name: v, pool: p, size: 2GiB, filled: 1GiB}
      - {name: w, pool: p, size: 2GiB, filled: 1GiB}
hosts:
  - name: h
    flash: {kind: sata}
    peers: [{name: far, flash: {kind: sata}, bandwidth: 100MB, latency: 200us}]
    cache: [{name: disk, volume: v, policy: write_back+1, size: 64MiB, block: 16KiB, path: 50us}]
jobs:
  - {name: load, volume: v, disk: lazy, size: 512MiB, outstanding: 4, io: 16KiB, write: 0.5, hot: {reads: 0.9, span: 32MiB}, for: 2s}
  - {name: delete, kind: unmap, volume: v, size: 256MiB, after: load}
  - {name: zero, kind: zero, volume: v, size: 128MiB, after: delete}
`

// TestCachedDevice runs guest I/O, zeroing of blocks, UNMAP and WRITE SAME through a cache with a peer.
func TestCachedDevice(t *testing.T) {
	s, err := Parse([]byte(cachedScenario))
	if err != nil {
		t.Fatal(err)
	}
	r, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	v := func(name string) float64 { return figureOf(t, r, name, 0, 0) }
	for _, name := range []string{"job.load.failed", "job.delete.failed", "job.zero.failed", "array.a.problems"} {
		if x := v(name); x != 0 {
			t.Errorf("%s is %v", name, x)
		}
	}
	if v("host.h.DELETE") == 0 || v("host.h.ZERO") == 0 || v("cache.disk.hit_percent") < 30 {
		t.Errorf("%v UNMAPs, %v WRITE SAMEs, %v %% hits", v("host.h.DELETE"), v("host.h.ZERO"), v("cache.disk.hit_percent"))
	}
	// A write is on the peer when it is acknowledged: two ways and its bytes, beside the flash's own time.
	if x, least := v("cache.disk.network_write_ms"), 0.4+16384/100e6*1e3; x < least {
		t.Errorf("a write with a peer takes %.3f ms; the link alone takes %.3f", x, least)
	}
	if v("cache.disk.datastore_write_iops") == 0 {
		t.Error("nothing goes to the array")
	}
	again, err := carryOut(s)
	if err != nil {
		t.Fatal(err)
	}
	a, b := r.Output(), again.Output()
	for _, name := range sortedKeys(a) {
		if !bytes.Equal(a[name], b[name]) {
			t.Errorf("%s differs from run to run", name)
		}
	}
	if !bytes.Contains(a["hostcache.csv"], []byte("h,disk,v")) || !strings.Contains(r.Report(), "h/disk") {
		t.Error("the outputs do not mention the cache")
	}
}

func TestCacheRefusals(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"hosts.h.cache.disk.policy", "fast"}:                                                                             "off, write_through, write_back+1",
		{"hosts.h.cache.disk.size", "100KiB"}:                                                                             "holds fewer than 16 blocks",
		{"hosts.h.cache.disk.block", "5KiB"}:                                                                              "power of two",
		{"hosts.h.cache.disk.volume", "x"}:                                                                                "no volume \"x\"",
		{"hosts.h.cache.disk.threshold", "1001"}:                                                                          "thousandths",
		{"hosts.h.cache.disk.eviction", "best"}:                                                                           "best",
		{"hosts.h.cache.disk.policy", "write_back+2"}:                                                                     "has no effect",
		{"hosts.h.flash.kind", "tape"}:                                                                                    "pcie, sata",
		{"hosts.h.flash.channels", "-1"}:                                                                                  "1 to 1024 channels",
		{"jobs", "[{volume: v, io: 4KiB, outstanding: 1, timeout: 1s}]"}:                                                  "no timeout",
		{"jobs", "[{kind: trace, volume: v}]"}:                                                                            "needs a trace",
		{"jobs", "[{kind: transactions, volume: v}]"}:                                                                     "users and steps",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{ios: 1}]}]"}:                                        "an I/O of",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{pattern: x}]}]"}:                                    "one of random",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{compute: 0s}]}]"}:                                   "does nothing",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{ios: 1, io: 4KiB, pattern: sparse}]}]"}:             "has hot, and sparse",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{ios: 1, io: 4KiB, from: 3GiB, span: 1GiB}]}]"}:      "do not fit",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{ios: 1, io: 4KiB, hot: {reads: 1, span: 1KiB}}]}]"}: "too small",
		{"jobs", "[{kind: transactions, volume: v, users: 1, steps: [{ios: 1, io: 4KiB, write: 2}]}]"}:                    "from 0 to 1",
	} {
		s, err := Parse([]byte(cachedScenario))
		if err != nil {
			t.Fatal(err)
		}
		value, err := ParseValue(change[1])
		if err != nil {
			t.Fatal(err)
		}
		if s, err = s.Set(change[0], value); err == nil {
			_, err = New(s)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s = %s: the error is %v; it should say %q", change[0], change[1], err, want)
		}
	}
}

// TestPatterns: a loop visits every block once a lap, updates go to what was read, and hot
// blocks of a sparse pattern have the holes that it says.
func TestPatterns(t *testing.T) {
	for _, n := range []uint64{1, 2, 7, 30720, 1966080} {
		p := txStep{TxStep: TxStep{Pattern: "loop", IO: 512}, blocks: n, stride: coprime(n)}
		s := &session{}
		seen := map[uint64]bool{}
		for range min(n, 40000) {
			seen[s.address(&p)] = true
		}
		if uint64(len(seen)) != min(n, 40000) {
			t.Errorf("a loop over %d blocks visits %d in its first %d", n, len(seen), min(n, 40000))
		}
	}
	p := txStep{TxStep: TxStep{Pattern: "sparse", IO: 4096, Sparse: []uint64{50, 100, 0}}, blocks: 1 << 30, hot: 1e6, hotBlocks: 8 * 1000}
	s := &session{rng: newRand(1, "patterns")}
	blocks, pairs := map[uint64]bool{}, map[uint64]bool{}
	for range 200_000 {
		b := s.address(&p) / 4096
		blocks[b], pairs[b/2] = true, true
	}
	// 1000 areas x 1.5 x 2 pairs, with one block each.
	if len(blocks) != len(pairs) || len(pairs) < 2850 || len(pairs) > 3150 {
		t.Errorf("%d hot blocks in %d pairs; there should be as many, about 3000", len(blocks), len(pairs))
	}
	u := txStep{TxStep: TxStep{Pattern: "update", IO: 512}, blocks: 100}
	s.read = []uint64{1024, 2048}
	if a, b := s.address(&u), s.address(&u); a != 2048 || b != 1024 {
		t.Errorf("updates go to %d and %d, not to what was read", a, b)
	}
}

// TestCopyBeneathCaches clones a volume whose cache has dirty data to one whose cache has dirty data, with
// guests that go on writing to both. Whichever of the two has a cache, the array carries the whole copy out, in
// as many commands as without any.
func TestCopyBeneathCaches(t *testing.T) {
	const size = 16 << 20
	for _, c := range []struct{ from, to string }{{"write_back", "write_back"}, {"write_back", ""}, {"", "write_back"}, {"write_through", "write_back"}} {
		var caches []string
		for i, policy := range []string{c.from, c.to} {
			if policy != "" {
				caches = append(caches, fmt.Sprintf("{volume: %c, policy: %s, size: 32MiB, block: 4KiB}", "vw"[i], policy))
			}
		}
		s, err := Parse(fmt.Appendf(nil, `
name: copy
profile: svc
until: 10s
sample: 10s
arrays:
  - name: a
    cache: 64MiB
    pools: [{name: p, mdisks: [{kind: hdd, count: 3, size: 4GiB}]}]
    volumes: [{name: v, pool: p, size: 1GiB, filled: 16MiB}, {name: w, pool: p, size: 1GiB, filled: 16MiB}]
hosts:
  - name: h
    destage_slots: 1
    flash: {channels: 8, read: 50us, write: 100us}
    cache: [%s]
jobs:
  - {name: source, volume: v, outstanding: 8, io: 4KiB, write: 1, span: 16MiB, for: 4s}
  - {name: target, volume: w, outstanding: 8, io: 4KiB, write: 1, span: 16MiB, for: 4s}
  - {name: clone, kind: clone, at: 2s, volume: v, to: w, size: 16MiB, outstanding: 4}
`, strings.Join(caches, ", ")))
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		for !r.Advance(r.now() + second) {
		}
		h := r.hosts[0]
		v, w := h.device(r.volumeNamed("v")), h.device(r.volumeNamed("w"))
		if v.top.MBCRd != size || w.top.MBCWr != size || w.top.CloneF != 0 {
			t.Errorf("%+v: %d bytes were read and %d written by copies, %d failed; want %d and none", c, v.top.MBCRd, w.top.MBCWr, w.top.CloneF, size)
		}
		if c.from == "write_back" {
			if n := v.cache.disk.Stats().OffloadFlushSectors; n == 0 {
				t.Errorf("%+v: nothing was destaged for the copy", c)
			}
		}
		if c.to == "write_back" {
			if n := w.cache.disk.Stats().SupersededSectors; n == 0 {
				t.Errorf("%+v: nothing dirty became void in the target", c)
			}
		}
		r.Finish()
	}
}
