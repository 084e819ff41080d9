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
// pool nor the name of one; when the folder has what `lsvdisk -delim :` and
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
	b := &iostatsFolder{readings: map[int64]*reading{}, pools: map[string]string{}, poolOf: map[string]string{}, has: map[setFile]bool{}}
	if err := b.listings(side); err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, name := range files {
		if err := b.file(name); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
	}
	var all []*reading
	for _, r := range b.readings {
		if len(r.volumes) > 0 {
			all = append(all, r)
		}
	}
	d := series(source, all, units{bytes: 512, time: 1e-3})
	if len(b.poolOf) == 0 {
		assignPools(d)
		d.Notes = append(d.Notes, "there is no lsvdisk: pools were inferred from how their fullness moves with volumes")
	}
	d.guessCaps()
	return d, nil
}

type iostatsFolder struct {
	readings map[int64]*reading
	pools    map[string]string // name by number
	poolOf   map[string]string // of a volume, by its name
	has      map[setFile]bool
}

// setFile is a file of a set of statistics: of one kind, of one node.
type setFile struct {
	at   int64
	kind string
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
			b.pools[col("mdisk_grp_id")] = col("mdisk_grp_name")
			b.poolOf[col("name")] = col("mdisk_grp_name")
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
		return fmt.Errorf("this is no XML: %w", err)
	}
	if root.XMLName.Local != "diskStatsColl" {
		return fmt.Errorf("this is no statistics file: its root is <%s>", root.XMLName.Local)
	}
	t, err := time.Parse(xmlTime, root.text("timestamp"))
	if err != nil {
		return fmt.Errorf("timestamp %q is not of the form %s", root.text("timestamp"), xmlTime)
	}
	// The files of one set may be a second apart.
	at := t.UnixNano()
	// A node writes one file of each kind into a set: a second one is of the next set.
	kind := fileKind(name)
	for _, near := range [...]int64{at, at - 1e9, at + 1e9} {
		if b.readings[near] != nil && !b.has[setFile{near, kind}] {
			at = near
			break
		}
	}
	if b.has[setFile{at, kind}] {
		return fmt.Errorf("there is another file of %s of %s", kind, root.text("timestamp"))
	}
	b.has[setFile{at, kind}] = true
	r := b.readings[at]
	if r == nil {
		r = newReading(at)
		b.readings[at] = r
	}
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

func (b *iostatsFolder) volume(r *reading, n *xmlNode) {
	name := n.text("id")
	if name == "" {
		name = "vdisk" + n.text("idx")
	}
	v := r.volume(name, b.poolOf[name])
	for d, a := range [2][3]string{{"ro", "rb", "rl"}, {"wo", "wb", "wl"}} {
		add(&v.ops[d], n.num(a[0]))
		add(&v.bytes[d], n.num(a[1]))
		add(&v.time[d], n.num(a[2]))
	}
	upper, lower := n.first("ca"), n.first("cpy", "ca")
	if upper != nil {
		add(&v.held, upper.num("cm")*512)
	}
	for _, ca := range [...]*xmlNode{lower, upper} {
		if ca != nil && !math.IsNaN(ca.num("ctds")) {
			add(&v.lower, ca.num("ctds"))
			break
		}
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

// assignPools gives every volume the pool whose fullness moves most like what the volume
// holds. Volumes that hold next to nothing go with the most of the others.
func assignPools(d *Data) {
	if len(d.Pools) == 0 {
		return
	}
	count := map[string]int{}
	for _, v := range d.Volumes {
		best, pool := 0.5, ""
		for _, p := range d.Pools {
			if c := stats.Correlation(v.Held, p.Full); c > best {
				best, pool = c, p.Name
			}
		}
		if v.Pool = pool; pool != "" {
			count[pool]++
		}
	}
	most := d.Pools[0].Name
	for _, p := range d.Pools {
		if count[p.Name] > count[most] {
			most = p.Name
		}
	}
	for _, v := range d.Volumes {
		if v.Pool == "" {
			v.Pool = most
		}
	}
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
