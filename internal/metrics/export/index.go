package export

import (
	"strings"

	"github.com/arraysim/arraysim/internal/metrics"
)

// tree is a snapshot by object, as the exporters want it that write a record a volume,
// a pool or a disk. Objects come in the order of their first sample.
type tree struct {
	volumes, pools, mdisks []*object
	byName                 map[string]*object
	cacheSize              float64
}

// object is one volume, pool or mdisk, with the sums of its samples.
type object struct {
	name, pool string
	index      int
	sums       map[string]float64 // by family and label values
	hists      map[string]*metrics.Histogram
	seen       bool
}

func (o *object) get(f *metrics.Family, values ...string) float64 {
	return o.sums[key(f, values)]
}

// hist never returns nil.
func (o *object) hist(f *metrics.Family, values ...string) *metrics.Histogram {
	if h := o.hists[key(f, values)]; h != nil {
		return h
	}
	return &metrics.Histogram{}
}

func key(f *metrics.Family, values []string) string {
	return f.Name + "\xff" + strings.Join(values, "\xff")
}

// fill takes a snapshot in. Objects stay, with their indexes, from one to the next;
// seen says whether the snapshot knows them.
func (t *tree) fill(s *metrics.Snapshot) {
	if t.byName == nil {
		t.byName = make(map[string]*object)
	}
	for _, o := range t.byName {
		o.seen = false
	}
	s.Each(func(f *metrics.Family, labels []string, v float64, h *metrics.Histogram) {
		if f == metrics.CacheSize {
			t.cacheSize = v
			return
		}
		var vol, pool, disk string
		rest := make([]string, 0, len(labels))
		for i, l := range f.Labels {
			switch l {
			case "volume":
				vol = labels[i]
			case "pool":
				pool = labels[i]
			case "mdisk":
				disk = labels[i]
			default:
				rest = append(rest, labels[i])
			}
		}
		var o *object
		switch {
		case vol != "":
			o = t.object(&t.volumes, "v\xff"+vol, vol)
		case disk != "":
			o = t.object(&t.mdisks, "m\xff"+pool+"\xff"+disk, disk)
		case pool != "":
			o = t.object(&t.pools, "p\xff"+pool, pool)
		default:
			return
		}
		if pool != "" {
			o.pool = pool
		}
		if !o.seen {
			o.seen = true
			o.sums, o.hists = make(map[string]float64), make(map[string]*metrics.Histogram)
		}
		if h != nil {
			c := *h
			o.hists[key(f, rest)] = &c
			return
		}
		// And the sum over all of them, which total asks for.
		o.sums[key(f, rest)] += v
		if len(rest) > 0 {
			o.sums[key(f, nil)] += v
		}
	})
}

func (t *tree) object(list *[]*object, key, name string) *object {
	o := t.byName[key]
	if o == nil {
		o = &object{name: name, index: len(*list)}
		t.byName[key] = o
		*list = append(*list, o)
	}
	return o
}

// total is the sum of a family's samples over all labels but the object's own.
func (o *object) total(f *metrics.Family) float64 { return o.sums[key(f, nil)] }
