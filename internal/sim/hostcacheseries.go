package sim

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// cacheTotals are cumulative figures of a cache.
type cacheTotals struct {
	views tier.Views
	stats tier.Stats
}

// cacheSample is what a cache did in an interval, and how it stood at its end.
type cacheSample struct {
	views     tier.Views // of the interval; without Max
	destaged  uint64     // bytes
	throttled uint64     // writes that got latency injected
	injected  int64      // nanoseconds, of those
	passed    uint64     // writes past the flash
	dirty     uint64     // bytes in the destaging area
	most      uint64     // the most of the interval's looks
	area      uint64     // bytes
	blocks    int64      // resident
}

// gauge is how often a cache's occupancy is looked at in a second.
const gauge = 20

func (r *Run) beginCaches() {
	if len(r.caches) == 0 {
		return
	}
	for _, k := range r.caches {
		k.disk.ResetStats()
		k.last = cacheTotals{k.disk.Views(), k.disk.Stats()}
	}
	looks := int64(0)
	var tick func()
	tick = func() {
		looks++
		whole := looks*(second/gauge)%int64(r.s.Series) == 0
		for _, k := range r.caches {
			k.checkPolicy(r)
			k.look()
			if whole {
				k.sample()
			}
		}
		r.at((looks+1)*(second/gauge), tick)
	}
	r.at(second/gauge, tick)
}

func (r *Run) finishCaches() {
	for _, k := range r.caches {
		if r.end%int64(r.s.Series) != 0 {
			k.look()
			k.sample()
		}
		k.stats = k.disk.CacheStats()
		k.checkPolicy(r)
		k.plugged = cachePolicies{}
		k.disk, k.below, k.spare = nil, nil, nil
	}
}

// look takes the highest occupancy of the interval.
func (k *cached) look() { k.top = max(k.top, k.disk.State().DirtySectors) }

// sample closes an interval.
func (k *cached) sample() {
	now := cacheTotals{k.disk.Views(), k.disk.Stats()}
	st := k.disk.State()
	x := cacheSample{views: viewsBetween(&k.last.views, &now.views), dirty: st.DirtySectors << 9, most: k.top << 9, area: st.AreaSectors << 9,
		destaged: (now.stats.DestagedSectors - k.last.stats.DestagedSectors) << 9, throttled: now.stats.ThrottledWrites - k.last.stats.ThrottledWrites,
		injected: now.stats.InjectedNanos - k.last.stats.InjectedNanos, passed: now.stats.PassedWrites - k.last.stats.PassedWrites,
		blocks: k.disk.CacheStats().NumBlocksCached}
	k.samples = append(k.samples, x)
	k.last, k.top = now, 0
}

// flows are the flows of views, in an order.
func flows(v *tier.Views) [9]*tier.Flow {
	return [9]*tier.Flow{&v.Effective.Read, &v.Effective.Write, &v.LocalFlash.Read, &v.LocalFlash.Write, &v.NetworkFlash.Read, &v.NetworkFlash.Write,
		&v.Datastore.Read, &v.Datastore.Write, &v.Destages}
}

var flowNames = [9]string{"effective_read", "effective_write", "local_read", "local_write", "network_read", "network_write", "datastore_read", "datastore_write", "destage"}

func viewsBetween(from, to *tier.Views) (d tier.Views) {
	a, b, out := flows(from), flows(to), flows(&d)
	for i := range out {
		*out[i] = tier.Flow{IOs: b[i].IOs - a[i].IOs, Bytes: b[i].Bytes - a[i].Bytes, Nanos: b[i].Nanos - a[i].Nanos}
	}
	return d
}

// window returns the sum of the intervals that end in (from, to], with the gauges of the last.
func (k *cached) window(r *Run, from, to int64) (sum cacheSample, seconds float64) {
	out := flows(&sum.views)
	for i := range k.samples {
		x := &k.samples[i]
		end := min(int64(i+1)*int64(r.s.Series), r.ending())
		if end <= from || end > to {
			continue
		}
		for n, f := range flows(&x.views) {
			out[n].IOs += f.IOs
			out[n].Bytes += f.Bytes
			out[n].Nanos += f.Nanos
		}
		sum.destaged += x.destaged
		sum.throttled += x.throttled
		sum.injected += x.injected
		sum.passed += x.passed
		sum.dirty, sum.area, sum.blocks = x.dirty, x.area, x.blocks
		sum.most = max(sum.most, x.most)
		seconds += float64(end-int64(i)*int64(r.s.Series)) / second
	}
	return sum, seconds
}

// ending is the end of the run, or its present time.
func (r *Run) ending() int64 {
	if r.end >= 0 {
		return r.end
	}
	return r.now()
}

// value is a figure of a cache; see [Run.Value].
func (k *cached) value(r *Run, what string, from, to int64) (float64, bool) {
	x, sec := k.window(r, from, to)
	v := &x.views
	percent := func(n, of uint64) (float64, bool) { return float64(n) / float64(max(of, 1)) * 100, of > 0 }
	switch what {
	case "hit_percent": // of reads
		return percent(v.LocalFlash.Read.IOs+v.NetworkFlash.Read.IOs, v.Effective.Read.IOs)
	case "occupancy": // of the destaging area, at the end
		return percent(x.dirty, x.area)
	case "occupancy_max":
		return percent(x.most, x.area)
	case "throttled": // writes with injected latency a second
		return perSecond(x.throttled, sec), true
	case "injected_ms": // the mean of those
		return meanMS(x.injected, x.throttled), true
	case "passed":
		return perSecond(x.passed, sec), true
	case "host_write_percent":
		return percent(v.Effective.Write.IOs, v.Effective.Read.IOs+v.Effective.Write.IOs)
	case "array_write_percent":
		return percent(v.Datastore.Write.IOs, v.Datastore.Read.IOs+v.Datastore.Write.IOs)
	case "host_write_bytes_percent":
		return percent(v.Effective.Write.Bytes, v.Effective.Read.Bytes+v.Effective.Write.Bytes)
	case "array_write_bytes_percent":
		return percent(v.Datastore.Write.Bytes, v.Datastore.Read.Bytes+v.Datastore.Write.Bytes)
	case "blocks":
		return float64(x.blocks), true
	case "num_blocks":
		return float64(k.cacheStats().NumBlocks), true
	case "dirty_mb": // in the destaging area, at the end
		return float64(x.dirty) / mb, true
	case "evict_blocks_per_op": // of the whole run, as the next
		if n := k.cacheStats().EvictMeanBlocks; n != nil {
			return float64(*n), true
		}
		return 0, false
	case "evictions":
		return float64(k.cacheStats().Evictions), true
	case "memory_percent": // of the cache's size
		return float64(k.cacheStats().MemoryBytes) / float64(k.spec.Size) * 100, true
	}
	name, unit, ok := cutUnit(what)
	if !ok {
		return 0, false
	}
	var f tier.Flow
	found := false
	for i, g := range flows(v) {
		// Without read or write it is both of a component.
		if flowNames[i] == name || strings.HasPrefix(flowNames[i], name+"_") {
			f.IOs, f.Bytes, f.Nanos, found = f.IOs+g.IOs, f.Bytes+g.Bytes, f.Nanos+g.Nanos, true
		}
	}
	switch unit {
	case "ms":
		return meanMS(f.Nanos, f.IOs), found && f.IOs > 0
	case "iops":
		return perSecond(f.IOs, sec), found
	}
	return perSecond(f.Bytes, sec) / mb, found
}

func cutUnit(what string) (name, unit string, ok bool) {
	for _, u := range [...]string{"mb_s", "iops", "ms"} {
		if name, ok = strings.CutSuffix(what, "_"+u); ok {
			return name, u, true
		}
	}
	return "", "", false
}

func (k *cached) cacheStats() tier.CacheStats {
	if k.disk == nil {
		return k.stats
	}
	return k.disk.CacheStats()
}

// cachesCSV is the time series of all caches: by component what it did, and the destaging area.
func (r *Run) cachesCSV() []byte {
	heads := []string{"seconds", "host", "disk", "volume"}
	for _, n := range flowNames {
		for _, u := range [...]string{"ios", "bytes", "ns"} {
			heads = append(heads, n+"_"+u)
		}
	}
	t := newTable(append(heads, "throttled_writes", "injected_ns", "passed_writes", "dirty_bytes", "dirty_max_bytes", "area_bytes", "resident_blocks")...)
	for _, k := range r.caches {
		for i := range k.samples {
			x := &k.samples[i]
			t.seconds(min(int64(i+1)*int64(r.s.Series), r.ending()))
			t.text(k.d.h.name, k.name, k.d.v.name)
			for _, f := range flows(&x.views) {
				t.ints(f.IOs, f.Bytes, uint64(f.Nanos))
			}
			t.ints(x.throttled, uint64(x.injected), x.passed, x.dirty, x.most, x.area, uint64(x.blocks))
			t.end()
		}
	}
	return t.bytes()
}

// reportCaches prints what the caches did, in the whole run.
func (r *Run) reportCaches(b *strings.Builder) {
	if len(r.caches) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%-16s %9s %8s %12s %9s %9s %12s %9s %9s %9s\n", "host cache", "I/O/s", "hits %", "effective ms", "local ms", "network", "datastore ms", "destage/s", "area % <=", "throttled")
	for _, k := range r.caches {
		v := func(width, digits int, name string) string {
			x, ok := k.value(r, name, 0, r.ending())
			return cell(width, digits, x, ok)
		}
		fmt.Fprintf(b, "%-16s%s%s%s%s%s%s%s%s%s\n", k.d.h.name+"/"+k.name, v(9, 0, "effective_iops"), v(8, 1, "hit_percent"), v(12, 3, "effective_ms"), v(9, 3, "local_ms"),
			v(9, 3, "network_ms"), v(12, 3, "datastore_ms"), v(9, 0, "destage_iops"), v(9, 1, "occupancy_max"), v(9, 0, "throttled"))
	}
}
