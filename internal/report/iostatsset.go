package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Sets of statistics files. Every node writes files of its own, and a volume's counters are in those of several nodes.
// They are compared node by node: a node that begins late, restarts or has lost a file must not become traffic of its
// volumes. What a volume did is the sum of what it did on each node, known only with the files of all of them.

// statsFile is what one file says: of one kind, of one node, such as Nv_stats_NODE.
type statsFile struct {
	kind, stamp string
	*reading
}

// statsSet is the files of all nodes of about the same time, by kind.
type statsSet struct {
	at      int64
	files   map[string]*reading
	volumes bool // a file has some
}

// join makes sets of files. Nodes write theirs at different times, less than half the usual time apart; and a node
// writes one file of each kind into a set, so that a second one is of the next.
func (b *iostatsFolder) join() error {
	slices.SortStableFunc(b.files, func(x, y statsFile) int { return cmp.Compare(x.time, y.time) })
	last := map[string]int64{}
	var steps []float64
	for _, f := range b.files {
		if was, ok := last[f.kind]; ok {
			if f.time == was {
				return fmt.Errorf("there is another file of %s of %s", f.kind, f.stamp)
			}
			steps = append(steps, float64(f.time-was))
		}
		last[f.kind] = f.time
	}
	apart := int64(time.Second)
	if len(steps) > 0 {
		apart = max(apart, int64(quantile(steps, 0.5)/2))
	}
	for _, f := range b.files {
		s := b.setOf(f, apart)
		s.files[f.kind] = f.reading
		s.volumes = s.volumes || len(f.volumes) > 0
	}
	return nil
}

// setOf is the set that a file belongs to: one of exactly its time, or the earliest that began no longer before.
func (b *iostatsFolder) setOf(f statsFile, apart int64) *statsSet {
	var found *statsSet
	for _, s := range slices.Backward(b.sets) {
		if f.time-s.at > apart {
			break
		}
		if s.files[f.kind] == nil {
			if found = s; s.at == f.time {
				break
			}
		}
	}
	if found == nil {
		found = &statsSet{at: f.time, files: map[string]*reading{}}
		b.sets = append(b.sets, found)
	}
	return found
}

// whole tells of each set whether it has the files of all nodes that have something then: those whose file before
// this set had it, or the first one, if that is later.
func (b *iostatsFolder) whole(has func(*reading) bool) []bool {
	members, known := map[string]bool{}, map[string]bool{}
	for _, s := range b.sets {
		for kind, r := range s.files {
			if !known[kind] {
				members[kind], known[kind] = has(r), true
			}
		}
	}
	out := make([]bool, len(b.sets))
	for i, s := range b.sets {
		out[i] = true
		for kind, there := range members {
			if there && s.files[kind] == nil && s.volumes {
				out[i] = false
				if b.lacks[kind] == nil {
					b.lacks[kind] = map[int64]bool{}
				}
				b.lacks[kind][s.at] = true
			}
		}
		for kind, r := range s.files {
			members[kind] = has(r)
		}
	}
	return out
}

// readings are those of the whole array that say something of volumes, one for each set.
func (b *iostatsFolder) readings() []*reading {
	var single, out []*reading
	for _, f := range b.files {
		single = append(single, f.reading)
	}
	for _, s := range b.sets {
		out = append(out, newReading(s.at))
	}
	for _, key := range names(single, func(r *reading) map[string]*volumeReading { return r.volumes }) {
		b.addVolume(key, out)
	}
	for _, name := range names(single, func(r *reading) map[string]*poolReading { return r.pools }) {
		b.addPool(name, out)
	}
	return slices.DeleteFunc(out, func(r *reading) bool { return len(r.volumes) == 0 })
}

// sums are a volume's counters.
func (v *volumeReading) sums() [7]*float64 {
	return [...]*float64{&v.ops[read], &v.ops[write], &v.bytes[read], &v.bytes[write], &v.time[read], &v.time[write], &v.lower}
}

// addVolume puts a volume into the readings of sets. Its sums there are those of what each node's have grown.
func (b *iostatsFolder) addVolume(key string, to []*reading) {
	whole := b.whole(func(r *reading) bool { return r.volumes[key] != nil })
	var was map[string]*volumeReading // by node
	var grown [7]float64
	for i, s := range b.sets {
		now, pool := map[string]*volumeReading{}, ""
		for kind, r := range s.files {
			if v := r.volumes[key]; v != nil {
				now[kind], pool = v, v.pool
			}
		}
		if !whole[i] {
			to[i].volume(key, pool) // of which nothing is known
			was = nil
			continue
		}
		if len(now) == 0 {
			continue
		}
		nodes := slices.Sorted(maps.Keys(now))
		x := to[i].volume(key, pool)
		// What a node did that has begun to have the volume, or has it no more, is not known.
		x.anew = was != nil && !slices.Equal(nodes, slices.Sorted(maps.Keys(was)))
		for _, node := range nodes {
			add(&x.held, now[node].held)
		}
		for k, sum := range x.sums() {
			there, inc := false, 0.0
			for _, node := range nodes {
				is, old := *now[node].sums()[k], math.NaN()
				before := was[node]
				if before != nil {
					old = *before.sums()[k]
				}
				if math.IsNaN(is) && math.IsNaN(old) {
					continue // this node does not count it
				}
				if there = true; before == nil {
					continue
				}
				d, reset := increase(old, is, false)
				if reset {
					x.anew, b.restarted, d = true, true, 0
				}
				inc += d
			}
			if there && !math.IsNaN(inc) {
				grown[k] += inc
				*sum = grown[k]
			}
		}
		was = now
	}
}

// addPool puts the fullness of a pool into the readings of sets: each node has a part of its own, and one that is full
// makes its hosts wait.
func (b *iostatsFolder) addPool(name string, to []*reading) {
	whole := b.whole(func(r *reading) bool { return r.pools[name] != nil })
	for i, s := range b.sets {
		if !whole[i] {
			continue
		}
		sum, n := 0.0, 0.0
		for _, kind := range slices.Sorted(maps.Keys(s.files)) {
			if p := s.files[kind].pools[name]; p != nil && !math.IsNaN(p.full) {
				sum, n = sum+p.full, n+1
				to[i].pool(name).peak = highest(to[i].pool(name).peak, p.peak)
			}
		}
		if n > 0 {
			to[i].pool(name).full = sum / n
		}
	}
}

// notes say what was amiss with the files of sets.
func (b *iostatsFolder) notes() (out []string) {
	if b.restarted {
		out = append(out, restarted)
	}
	for _, kind := range slices.Sorted(maps.Keys(b.lacks)) {
		out = append(out, fmt.Sprintf("%s has no file in %d of %d sets: its volumes or pools are not known there, nor what they did just before and after; if the node was not part of the array then, leave its files out", kind, len(b.lacks[kind]), len(b.sets)))
	}
	for _, zone := range slices.Sorted(maps.Keys(b.zones)) {
		if _, ok := zoneOffset(zone); ok {
			out = append(out, fmt.Sprintf("times are UTC; those of the files are %s", zone))
		} else {
			out = append(out, fmt.Sprintf("timezone %q of the files is not of the form GMT+2:00: times are as they have them", zone))
		}
	}
	return out
}

// zoneForm is a time zone, with hours and minutes ahead of UTC.
var zoneForm = regexp.MustCompile(`^(?:GMT|UTC)(?:([+-])(\d{1,2}):?(\d{2})?)?$`)

// zoneOffset is by how much the clock of a time zone, such as GMT+2:00, is ahead of UTC. Without one it is UTC.
func zoneOffset(zone string) (time.Duration, bool) {
	m := zoneForm.FindStringSubmatch(zone)
	if m == nil {
		return 0, zone == ""
	}
	// What is left out is 0.
	hours, _ := strconv.Atoi(m[2])
	minutes, _ := strconv.Atoi(m[3])
	d := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	if m[1] == "-" {
		d = -d
	}
	return d, true
}
