package report

import (
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

	"github.com/arraysim/arraysim/internal/stats"
)

// The statistics files of SAN Volume Controller, Storwize and Spectrum Virtualize: a
// folder with Nn, Nv and Nm files of one or more nodes. The files do not tell a volume's
// pool nor the name of one; when the folder has what `lsvdisk -delim :`, `lsvdiskcopy -delim :` and
// `lsmdiskgrp -delim :` print, as files of these names, they do. Else pools are called
// mdg0, mdg1 and so on, and a volume belongs to the pool whose fullness moves with it.

// xmlNode is any element.
type xmlNode struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Inner   []xmlNode  `xml:",any"`
}

func (n *xmlNode) text(name string) string {
	for _, a := range n.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// num is an attribute as a number, NaN if there is none.
func (n *xmlNode) num(name string) float64 {
	v, err := strconv.ParseFloat(n.text(name), 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

func (n *xmlNode) all(name string) []*xmlNode {
	var out []*xmlNode
	for i := range n.Inner {
		if n.Inner[i].XMLName.Local == name {
			out = append(out, &n.Inner[i])
		}
	}
	return out
}

func (n *xmlNode) first(path ...string) *xmlNode {
	for _, p := range path {
		if n == nil {
			return nil
		}
		found := n.all(p)
		if len(found) == 0 {
			return nil
		}
		n = found[0]
	}
	return n
}

const xmlTime = "2006-01-02 15:04:05"

// fromIOStats reads a folder, or files, of statistics.
func fromIOStats(source string, files []string, side map[string]string) (*Data, error) {
	b := &iostatsFolder{pools: map[string]string{}, poolOf: map[string]string{}, copies: map[string]map[string]bool{}, repeats: map[string]bool{}, lacks: map[string]map[int64]bool{}, zones: map[string]bool{}}
	if err := b.listings(side); err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, name := range files {
		if err := b.file(name); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	if err := b.join(); err != nil {
		return nil, err
	}
	all := b.readings()
	b.nameCopies(all)
	d := series(source, all, units{bytes: 512, time: 1e-3})
	d.Notes = append(d.Notes, b.notes()...)
	for _, v := range d.Volumes {
		v.Repeats = b.repeats[v.Name]
	}
	if n := assignPools(d); n > 0 && len(b.poolOf) == 0 {
		d.Notes = append(d.Notes, "there is no lsvdisk: pools were inferred from how their fullness moves with volumes")
	} else if n > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("the pools of %d volumes or copies were inferred from how their fullness moves with them: lsvdisk does not name them, and there is no lsvdiskcopy that does", n))
	}
	d.guessCaps()
	return d, nil
}

type iostatsFolder struct {
	files     []statsFile
	sets      []*statsSet
	pools     map[string]string // name by number
	poolOf    map[string]string // of a volume, by its name; of a copy, by its key
	copies    map[string]map[string]bool
	repeats   map[string]bool           // names of copies after the first
	lacks     map[string]map[int64]bool // sets without a file of a kind that has to be there
	zones     map[string]bool           // that are not UTC
	restarted bool                      // a node's counters did
}

// fileKind is a file's kind and node: its name without date and time, Nv_stats_NODE.
func fileKind(path string) string {
	name := filepath.Base(path)
	for range 2 {
		if i := strings.LastIndexByte(name, '_'); i > 0 {
			name = name[:i]
		}
	}
	return name
}

func (b *iostatsFolder) listings(side map[string]string) error {
	rows := func(file string, use func(col func(string) string)) error {
		path, ok := side[file]
		if !ok {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		head := strings.Split(strings.TrimSpace(lines[0]), ":")
		for _, l := range lines[1:] {
			cells := strings.Split(strings.TrimSpace(l), ":")
			use(func(name string) string {
				if i := slices.Index(head, name); i >= 0 && i < len(cells) {
					return cells[i]
				}
				return ""
			})
		}
		return nil
	}
	return errors.Join(
		rows("lsmdiskgrp", func(col func(string) string) { b.pools[col("id")] = col("name") }),
		rows("lsvdisk", func(col func(string) string) {
			if col("mdisk_grp_name") != manyPools {
				b.pools[col("mdisk_grp_id")] = col("mdisk_grp_name")
			}
			b.poolOf[col("name")] = col("mdisk_grp_name")
		}),
		rows("lsvdiskcopy", func(col func(string) string) {
			b.pools[col("mdisk_grp_id")] = col("mdisk_grp_name")
			b.poolOf[copyKey(col("vdisk_name"), col("copy_id"))] = col("mdisk_grp_name")
		}))
}

func (b *iostatsFolder) poolName(mdg string) string {
	if n := b.pools[mdg]; n != "" {
		return n
	}
	return "mdg" + mdg
}

func (b *iostatsFolder) file(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var root xmlNode
	if err := xml.NewDecoder(f).Decode(&root); err != nil {
		return fmt.Errorf("this is not XML: %w", err)
	}
	if root.XMLName.Local != "diskStatsColl" {
		return fmt.Errorf("this is not a statistics file: its root is <%s>", root.XMLName.Local)
	}
	t, err := time.Parse(xmlTime, root.text("timestamp"))
	if err != nil {
		return fmt.Errorf("timestamp %q is not of the form %s", root.text("timestamp"), xmlTime)
	}
	zone := root.text("timezone")
	if offset, ok := zoneOffset(zone); !ok || offset != 0 {
		b.zones[zone] = true
		t = t.Add(-offset)
	}
	r := newReading(t.UnixNano())
	b.files = append(b.files, statsFile{kind: fileKind(name), stamp: root.text("timestamp"), reading: r})
	for _, v := range root.all("vdsk") {
		b.volume(r, v)
	}
	for _, cache := range [...]string{"uca", "lca"} {
		if c := root.first(cache); c != nil {
			for _, p := range c.all("partition") {
				b.partition(r, p)
			}
		}
	}
	return nil
}

// volume takes a volume, copy by copy: hosts' writes go to all copies, each of which has a lower cache of its own and
// may be in another pool. What is written to one alone (a migration, the synchronization of a mirror)
// shows there. Reads are counted with the first copy.
func (b *iostatsFolder) volume(r *reading, n *xmlNode) {
	name := n.text("id")
	if name == "" {
		name = "vdisk" + n.text("idx")
	}
	copies := n.all("cpy")
	if len(copies) == 0 {
		copies = []*xmlNode{nil}
	}
	upper := n.first("ca")
	for i, c := range copies {
		idx := ""
		if c != nil {
			idx = c.text("idx")
		}
		if b.copies[name] == nil {
			b.copies[name] = map[string]bool{}
		}
		b.copies[name][idx] = true
		v := r.volume(copyKey(name, idx), b.poolOfCopy(name, idx))
		if i > 0 {
			b.repeats[name+" copy "+idx] = true
		}
		for d, a := range [2][3]string{{"ro", "rb", "rl"}, {"wo", "wb", "wl"}} {
			if i > 0 && d == read {
				continue
			}
			add(&v.ops[d], n.num(a[0]))
			add(&v.bytes[d], n.num(a[1]))
			add(&v.time[d], n.num(a[2]))
		}
		// Only the first of these that says it: a lower cache is below the upper one.
		lower := c.first("ca")
		held := []*xmlNode{upper, lower}
		if len(copies) > 1 {
			held = []*xmlNode{lower, upper} // the upper one is of all copies
		}
		firstKnown(&v.held, "cm", 512, held...)
		firstKnown(&v.lower, "ctds", 1, lower, upper)
	}
}

// firstKnown adds the attribute of the first node that has it.
func firstKnown(to *float64, name string, unit float64, nodes ...*xmlNode) {
	for _, n := range nodes {
		if n != nil && !math.IsNaN(n.num(name)) {
			add(to, n.num(name)*unit)
			return
		}
	}
}

// copyKey is a copy's key in readings until all files are read, when it is known whether it needs a name.
func copyKey(volume, idx string) string { return volume + "\x00" + idx }

// poolOfCopy is what lsvdiskcopy says, or lsvdisk, where it is one pool.
func (b *iostatsFolder) poolOfCopy(volume, idx string) string {
	if p := b.poolOf[copyKey(volume, idx)]; p != "" {
		return p
	}
	if p := b.poolOf[volume]; p != manyPools {
		return p
	}
	return ""
}

// manyPools is what lsvdisk has as the pool of a volume whose copies are in several.
const manyPools = "many"

// nameCopies gives readings their names: a volume that never had a second copy has its own, else each copy has its
// number, so that the counters of one are never taken for those of another.
func (b *iostatsFolder) nameCopies(readings []*reading) {
	for _, r := range readings {
		named := map[string]*volumeReading{}
		for key, v := range r.volumes {
			name, idx, _ := strings.Cut(key, "\x00")
			if len(b.copies[name]) > 1 {
				name += " copy " + idx
			}
			named[name] = v
		}
		r.volumes = named
	}
}

func (b *iostatsFolder) partition(r *reading, n *xmlNode) {
	ca := n.first("ca")
	if ca == nil {
		return
	}
	p := r.pool(b.poolName(n.text("mdg")))
	for _, prefix := range [...]string{"wcf", "cf"} {
		if avg := ca.num(prefix + "av"); !math.IsNaN(avg) {
			p.full, p.peak = avg/100, highest(avg, ca.num(prefix+"mx"))/100
			return
		}
	}
}

// assignPools gives every volume that has none the pool whose fullness moves most like what the volume
// holds, and returns how many these are. Those that hold next to nothing go with the most of the others.
func assignPools(d *Data) (n int) {
	if len(d.Pools) == 0 {
		return 0
	}
	count := map[string]int{}
	var open []*Volume
	for _, v := range d.Volumes {
		if v.Pool == "" {
			n++
			best := 0.5
			for _, p := range d.Pools {
				if c := stats.Correlation(v.Held, p.Full); c > best {
					best, v.Pool = c, p.Name
				}
			}
		}
		if v.Pool == "" {
			open = append(open, v)
		} else {
			count[v.Pool]++
		}
	}
	most := d.Pools[0].Name
	for _, p := range d.Pools {
		if count[p.Name] > count[most] {
			most = p.Name
		}
	}
	for _, v := range open {
		v.Pool = most
	}
	return n
}

// guessCaps estimates the caps of partitions where the source does not have them: what
// the pool's volumes hold when it is full.
func (d *Data) guessCaps() {
	for _, p := range d.Pools {
		if !math.IsNaN(quantile(p.Cap, 0.5)) {
			continue
		}
		vols := d.of(p.Name)
		top, full := math.NaN(), math.NaN()
		for i := range d.Times {
			held := math.NaN()
			for _, v := range vols {
				add(&held, v.Held[i])
			}
			top, full = highest(top, held), highest(full, p.Peak[i])
		}
		if !(full > 0 && top > 0) {
			continue
		}
		for i := range p.Cap {
			p.Cap[i] = top / full
		}
	}
}
