package export

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arraysim/arraysim/internal/metrics"
)

// Statistics files in the form in which SAN Volume Controller, Storwize and Spectrum
// Virtualize leave them in /dumps/iostats, so that what reads those reads ours. The
// names of elements and attributes are the format's; docs/counters.md, "iostats", says
// which counter each comes from.

// IOStatsOptions are an iostats folder's settings; zero values have defaults.
type IOStatsOptions struct {
	// Interval between two sets of files; snapshots between them count for the minima
	// and maxima. 0 writes a set for every snapshot. It is 1 s or more.
	Interval time.Duration
	Panel    string // serial number of the node's panel, in the files' names: "000000"
	Cluster  string // "arraysim"
	Keep     int    // files of each kind: 16
	// Base is added to times: where the clock of a scenario begins.
	Base time.Time
}

const iostatsTime = "2006-01-02 15:04:05"

// iostats kinds: the letters of their files' names.
const (
	kindNode   = "Nn"
	kindVolume = "Nv"
	kindMdisk  = "Nm"
	kindDrive  = "Nd"
)

var iostatsKinds = map[string]struct{ ns, contains string }{
	kindNode:   {"2006/01/nodeStats", "nodeStats"},
	kindVolume: {"2005/08/vDiskStats", "virtualDiskStats"},
	kindMdisk:  {"2003/04/diskStats", "managedDiskStats"},
	kindDrive:  {"2010/03/driveStats", "driveStats"},
}

// IOStats writes iostats files into a folder. It is a [SnapshotWriter].
type IOStats struct {
	dir   string
	opt   IOStatsOptions
	tree  tree
	due   int64 // time of the next set
	last  int64 // of the last snapshot
	again bool  // a name may come that the list has
	fill  map[*object]*fullness
	was   map[*object]map[string]*metrics.Histogram // durations at the last set
	list  map[string][]string                       // files by kind, oldest first
}

// fullness is a partition's, since the last set; in percent.
type fullness struct {
	from, now            float64 // integral of bytes, at the last set and at the last snapshot
	at                   int64   // time of the last set
	lowest, highest, sum float64
	n                    int
}

// NewIOStats writes into dir, which it makes. Sets of an earlier writer in the folder
// count among those that are kept.
func NewIOStats(dir string, opt IOStatsOptions) (*IOStats, error) {
	if opt.Interval != 0 && opt.Interval < time.Second {
		return nil, fmt.Errorf("iostats: an interval of %v is too short, their names have whole seconds; give 1s or more", opt.Interval)
	}
	if opt.Panel == "" {
		opt.Panel = "000000"
	}
	if opt.Cluster == "" {
		opt.Cluster = "arraysim"
	}
	if opt.Keep == 0 {
		opt.Keep = 16
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("iostats: %w", err)
	}
	w := &IOStats{dir: dir, opt: opt, due: math.MinInt64, fill: map[*object]*fullness{},
		was: map[*object]map[string]*metrics.Histogram{}, list: map[string][]string{}}
	files, err := os.ReadDir(dir) // in the order of their names
	if err != nil {
		return nil, fmt.Errorf("iostats: %w", err)
	}
	for _, f := range files {
		if kind, _, ok := strings.Cut(f.Name(), "_stats_"); ok && iostatsKinds[kind].contains != "" {
			w.list[kind] = append(w.list[kind], filepath.Join(dir, f.Name()))
			w.again = true
		}
	}
	return w, nil
}

// Write takes a snapshot in and, when an interval is over, writes a set of files.
func (w *IOStats) Write(s *metrics.Snapshot) error {
	w.tree.fill(s)
	for _, p := range w.tree.pools {
		if p.seen {
			w.observe(p, s.Time)
		}
	}
	back := s.Time < w.last // somebody set the clock back, and what is due is far away
	w.again = w.again || back
	if w.last = s.Time; w.due != math.MinInt64 && s.Time < w.due && !back {
		return nil
	}
	w.due = s.Time + int64(w.opt.Interval)
	return w.set(s.Time)
}

// Close ends the writer. A set for a part of an interval is not written.
func (w *IOStats) Close() error { return nil }

func (w *IOStats) observe(p *object, now int64) {
	f := w.fill[p]
	if f == nil {
		f = &fullness{from: p.get(metrics.CacheUsedSeconds), at: now, lowest: math.Inf(1)}
		w.fill[p] = f
	}
	f.now = p.get(metrics.CacheUsedSeconds)
	if limit := p.get(metrics.CacheLimit); limit > 0 {
		x := 100 * p.get(metrics.CacheUsed) / limit
		f.lowest, f.highest = min(f.lowest, x), max(f.highest, x)
		f.sum += x
		f.n++
	}
}

// take returns the average, count, minimum and maximum of a partition's fullness and
// begins anew. The average is that of the integral, the others those of the snapshots.
func (w *IOStats) take(p *object, now int64) []attr {
	f, limit := w.fill[p], p.get(metrics.CacheLimit)
	if f == nil || f.n == 0 {
		return nil
	}
	avg := f.sum / float64(f.n)
	if dt := float64(now-f.at) / 1e9; dt > 0 && limit > 0 && f.now >= f.from {
		avg = min(100*(f.now-f.from)/dt/limit, 100)
	}
	low, high := min(f.lowest, avg), max(f.highest, avg)
	w.fill[p] = &fullness{from: f.now, now: f.now, at: now, lowest: math.Inf(1)}
	whole := func(x float64) string { return strconv.FormatInt(int64(math.Round(x)), 10) }
	var out []attr
	for _, prefix := range [...]string{"cf", "wcf"} {
		out = append(out, attr{prefix + "av", whole(avg)}, attr{prefix + "cn", strconv.Itoa(f.n)}, attr{prefix + "mn", whole(low)}, attr{prefix + "mx", whole(high)})
	}
	return out
}

// worst is the longest duration since the last set, in milliseconds: the upper bound
// of the highest bucket that grew.
func (w *IOStats) worst(o *object, name string, h *metrics.Histogram) int64 {
	if w.was[o] == nil {
		w.was[o] = map[string]*metrics.Histogram{}
	}
	was := w.was[o][name]
	c := *h
	w.was[o][name] = &c
	for i := len(h.Buckets) - 1; i >= 0; i-- {
		if was != nil && h.Buckets[i] == was.Buckets[i] || h.Buckets[i] == 0 {
			continue
		}
		return metrics.LatencyBounds[min(i, len(metrics.LatencyBounds)-1)] / 1e6
	}
	return 0
}

type attr struct{ name, value string }

func num(name string, v float64) attr { return attr{name, strconv.FormatUint(uint64(max(v, 0)), 10)} }

func sectors(name string, bytes float64) attr { return num(name, bytes/512) }

// element is a line or a nest of lines of a file.
type element struct {
	name  string
	attrs []attr
	inner []element
}

func (e *element) write(w *bufio.Writer, depth int) {
	w.WriteString(strings.Repeat("  ", depth))
	w.WriteByte('<')
	w.WriteString(e.name)
	for _, a := range e.attrs {
		w.WriteByte(' ')
		w.WriteString(a.name)
		w.WriteString(`="`)
		// The writer's errors come out at its Flush.
		_ = xml.EscapeText(w, []byte(a.value))
		w.WriteByte('"')
	}
	if len(e.inner) == 0 {
		w.WriteString(" />\n")
		return
	}
	w.WriteString(">\n")
	for i := range e.inner {
		e.inner[i].write(w, depth+1)
	}
	w.WriteString(strings.Repeat("  ", depth) + "</" + e.name + ">\n")
}

func (w *IOStats) set(now int64) error {
	t := time.Unix(0, now).UTC()
	if !w.opt.Base.IsZero() {
		t = w.opt.Base.Add(time.Duration(now))
	}
	for _, f := range []struct {
		kind  string
		inner []element
	}{{kindNode, w.node(now)}, {kindVolume, w.vdisks()}, {kindMdisk, w.mdisks("mdsk", true)}, {kindDrive, w.mdisks("mdsk", false)}} {
		if err := w.file(f.kind, t, f.inner); err != nil {
			return fmt.Errorf("iostats: %w", err)
		}
	}
	if err := w.names(); err != nil {
		return fmt.Errorf("iostats: %w", err)
	}
	return nil
}

func (w *IOStats) file(kind string, t time.Time, inner []element) error {
	k := iostatsKinds[kind]
	root := element{"diskStatsColl", []attr{
		{"xmlns", "http://ibm.com/storage/management/performance/api/" + k.ns},
		{"scope", "node"}, {"id", "node1"}, {"cluster", w.opt.Cluster}, {"node_id", "0x0000000000000001"}, {"cluster_id", "0x0000000000000001"},
		{"sw_level", "arraysim"}, {"timestamp", t.Format(iostatsTime)}, {"timezone", "GMT+0:00"}, {"contains", k.contains},
		{"sizeUnits", "512B"}, {"timeUnits", "msec"}}, inner}
	name := filepath.Join(w.dir, kind+"_stats_"+w.opt.Panel+"_"+t.Format("060102_150405"))
	err := w.replace(name, func(b *bufio.Writer) {
		b.WriteString("<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n")
		root.write(b, 0)
	})
	if err != nil {
		return err
	}
	list := w.list[kind]
	if w.again { // looking costs time by the number that is kept
		list = slices.DeleteFunc(list, func(n string) bool { return n == name })
	}
	if len(list) == 0 || list[len(list)-1] != name {
		list = append(list, name)
	}
	for ; len(list) > w.opt.Keep; list = list[1:] {
		if err := os.Remove(list[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	w.list[kind] = list
	return nil
}

// replace writes a file. A reader that comes at this moment must not see half of it.
func (w *IOStats) replace(name string, write func(*bufio.Writer)) error {
	part, err := os.CreateTemp(w.dir, ".part")
	if err != nil {
		return err
	}
	b := bufio.NewWriter(part)
	write(b)
	err = errors.Join(b.Flush(), part.Chmod(0o644), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), name)
	}
	if err != nil {
		os.Remove(part.Name())
	}
	return err
}

// cacheOf are the attributes that volumes and copies have: what the cache did for o.
// upper counts what came from hosts, lower all that went to the back end's side.
func cacheOf(o *object, upper bool) element {
	dirty := o.total(metrics.CacheDirty)
	write := o.total(metrics.CacheAdmitted)
	mode := func(m string) (sum float64) {
		for k, v := range o.sums {
			if strings.HasPrefix(k, metrics.CacheAdmitted.Name+"\xff") && strings.HasSuffix(k, "\xff"+m) {
				sum += v
			}
		}
		return sum
	}
	fast, short, flush, through := mode("fast"), mode("fast_short_memory"), mode("flush_through"), mode("write_through")
	if upper {
		write = o.get(metrics.HostTransferred, "write")
	}
	return element{"ca", []attr{sectors("cv", dirty), sectors("cm", dirty), sectors("ctps", 0), sectors("ctds", o.total(metrics.CacheDestaged)),
		sectors("ctrs", o.get(metrics.HostTransferred, "read")), sectors("ctrhs", 0), sectors("ctrhps", 0), sectors("ctws", write),
		sectors("ctwhs", o.total(metrics.CacheOverwritten)), sectors("ctwfts", flush), sectors("ctwwts", through), sectors("ctwfws", fast), sectors("ctwfwshs", short)}, nil}
}

func (w *IOStats) vdisks() []element {
	var out []element
	for _, v := range w.tree.volumes {
		if !v.seen || v.pool == "" {
			continue
		}
		r, wr := v.hist(metrics.HostDuration, "read"), v.hist(metrics.HostDuration, "write")
		lower := cacheOf(v, false)
		out = append(out, element{"vdsk", []attr{{"idx", strconv.Itoa(v.index)}, {"id", v.name},
			num("ctps", 0), num("ro", float64(r.Count)), num("wo", float64(wr.Count)),
			sectors("rb", v.get(metrics.HostTransferred, "read")), sectors("wb", v.get(metrics.HostTransferred, "write")),
			num("rl", float64(r.Sum/1e6)), num("wl", float64(wr.Sum/1e6)), num("rlw", float64(w.worst(v, "r", r))), num("wlw", float64(w.worst(v, "w", wr))),
			num("xl", 0)}, []element{cacheOf(v, true), {"cpy", []attr{{"idx", "0"}}, []element{lower}}}})
	}
	return out
}

func (w *IOStats) mdisks(name string, cache bool) []element {
	var out []element
	for _, d := range w.tree.mdisks {
		if !d.seen {
			continue
		}
		r, wr := d.hist(metrics.BackendDuration, "read"), d.hist(metrics.BackendDuration, "write")
		bytes := func(dir string) (sum float64) {
			for k, v := range d.sums {
				if strings.HasPrefix(k, metrics.BackendBytes.Name+"\xff"+dir+"\xff") {
					sum += v
				}
			}
			return sum
		}
		a := []attr{{"idx", strconv.Itoa(d.index)}, {"id", d.pool + "." + d.name}, num("ro", float64(r.Count)), num("wo", float64(wr.Count)),
			sectors("rb", bytes("read")), sectors("wb", bytes("write"))}
		for _, x := range [...]struct {
			suffix string
			unit   int64
		}{{"", 1e6}, {"u", 1e3}} {
			for _, n := range [...]string{"e", "q"} {
				a = append(a, num(x.suffix+"r"+n, float64(r.Sum/x.unit)), num(x.suffix+"w"+n, float64(wr.Sum/x.unit)))
			}
		}
		worstR, worstW := float64(w.worst(d, name+"r"+strconv.FormatBool(cache), r)), float64(w.worst(d, name+"w"+strconv.FormatBool(cache), wr))
		a = append(a, num("pre", worstR), num("pwe", worstW), num("pro", worstR), num("pwo", worstW))
		e := element{name: name, attrs: a}
		if cache {
			e.inner = []element{{"ca", []attr{sectors("ctds", bytes("write")), sectors("ctps", 0)}, nil}}
		}
		out = append(out, e)
	}
	return out
}

func (w *IOStats) node(now int64) []element {
	var read, write, ro, wo float64
	for _, v := range w.tree.volumes {
		if v.seen {
			read, write = read+v.get(metrics.HostTransferred, "read"), write+v.get(metrics.HostTransferred, "write")
			ro, wo = ro+float64(v.hist(metrics.HostDuration, "read").Count), wo+float64(v.hist(metrics.HostDuration, "write").Count)
		}
	}
	var upper, lower []element
	used, limits := 0.0, w.tree.cacheSize
	for _, p := range w.tree.pools {
		if !p.seen {
			continue
		}
		used += p.get(metrics.CacheUsed)
		if a := w.take(p, now); a != nil {
			part := element{"partition", []attr{{"mdg", strconv.Itoa(p.index)}}, []element{{"ca", a, nil}}}
			upper, lower = append(upper, part), append(lower, part)
		}
	}
	full := []attr{}
	if limits > 0 {
		v := strconv.FormatInt(int64(math.Round(100*used/limits)), 10)
		for _, p := range [...]string{"cf", "wcf"} {
			full = append(full, attr{p + "av", v}, attr{p + "cn", "1"}, attr{p + "mn", v}, attr{p + "mx", v})
		}
	}
	return []element{
		{"node", []attr{{"id", "node1"}, {"cluster", w.opt.Cluster}, {"node_id", "0x0000000000000001"}, {"cluster_id", "0x0000000000000001"},
			num("ro", ro), num("wo", wo), sectors("rb", read), sectors("wb", write), num("re", 0), num("we", 0), num("rq", 0), num("wq", 0)}, nil},
		{"port", []attr{{"id", "1"}, {"type", "iSCSI"}, num("hbr", write), num("hbt", read), num("her", ro+wo), num("het", 0),
			num("cbr", 0), num("cbt", 0), num("cer", 0), num("cet", 0), num("lnbr", 0), num("lnbt", 0), num("lner", 0), num("lnet", 0),
			num("rmbr", 0), num("rmbt", 0), num("rmer", 0), num("rmet", 0)}, nil},
		{"uca", nil, append([]element{{"ca", full, nil}}, upper...)},
		{"lca", nil, append([]element{{"ca", full, nil}}, lower...)},
	}
}

// names writes what the files' numbers mean, as lsvdisk and lsmdiskgrp list it: the
// statistics name a partition and not the pool, and not the pool of a volume.
func (w *IOStats) names() error {
	var vols, pools strings.Builder
	vols.WriteString("id:name:mdisk_grp_id:mdisk_grp_name\n")
	pools.WriteString("id:name\n")
	for _, p := range w.tree.pools {
		fmt.Fprintf(&pools, "%d:%s\n", p.index, p.name)
	}
	for _, v := range w.tree.volumes {
		if p := w.tree.byName["p\xff"+v.pool]; p != nil {
			fmt.Fprintf(&vols, "%d:%s:%d:%s\n", v.index, v.name, p.index, p.name)
		}
	}
	put := func(name string, text *strings.Builder) error {
		return w.replace(filepath.Join(w.dir, name), func(b *bufio.Writer) { b.WriteString(text.String()) })
	}
	return errors.Join(put("lsvdisk", &vols), put("lsmdiskgrp", &pools))
}
