package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sentence is the verdict on a run for those who read nothing else: what was written undercover, what it cost, and
// where these counters cannot tell.
func (f *Findings) Sentence() string {
	tower := f.highest(func(*Tower) bool { return true })
	offload := f.highest(func(t *Tower) bool { return t.Cause == "undercover" })
	switch {
	case len(f.Undercover) == 0 && len(f.Labelled) > 0:
		bytes, of := sumByVolume(f.Labelled, func(l Labelled) (string, float64) { return l.Volume, l.Bytes })
		return fmt.Sprintf("The array's origin label says that offloads wrote %s to %s, which its other counters do not prove; %s.", size(bytes), of, f.response(tower))
	case len(f.Undercover) == 0 && f.Floor == nil:
		return "These counters do not show what was written below what hosts see; " + f.response(tower) + "."
	case len(f.Undercover) == 0:
		what := fmt.Sprintf("These counters prove no undercover write, and would not show every one below %s", size(max(f.Floor.Bytes, f.Floor.VolumeBytes)))
		if f.NothingLabelled() {
			what = "Nothing was written undercover, as the array's own label says"
		}
		return what + "; " + f.response(tower) + "."
	}
	bytes, of := sumByVolume(f.Undercover, func(u Undercover) (string, float64) { return u.Volume, u.Bytes })
	what := fmt.Sprintf("Offloads wrote at least %s to %s, below what hosts see", size(bytes), of)
	if offload != nil {
		return fmt.Sprintf("%s; they filled the write cache of pool %s, and a response took %s instead of %s.", what, offload.Pool, millis(offload.Height), millis(offload.Base))
	}
	return what + "; " + f.response(tower) + "."
}

// highest returns the highest tower of a kind, nil if there is none.
func (f *Findings) highest(of func(*Tower) bool) (out *Tower) {
	for i := range f.Towers {
		if t := &f.Towers[i]; of(t) && (out == nil || t.Height > out.Height) {
			out = t
		}
	}
	return out
}

// causes are those of towers that no offload made, as a sentence has them.
var causes = map[string]string{
	"hosts":    "because hosts wrote more than its back end takes",
	"cache":    "with a full write cache although hosts wrote no more than usual",
	"back end": "although its write cache had room, so look at its back end",
}

// response says the worst of the response times.
func (f *Findings) response(t *Tower) string {
	if t == nil {
		if f.towersUnknown() {
			return "for some pools they do not show how slow responses were"
		}
		return "no sample has a mean response of " + towerFrom
	}
	why := causes[t.Cause]
	switch {
	case why == "":
		why = "and these counters lack what would say why"
	case t.Cause == "back end" && t.full:
		why = "with a full write cache because its back end took less than at other times"
	}
	return fmt.Sprintf("pool %s answered in %s instead of %s, %s", t.Pool, millis(t.Height), millis(t.Base), why)
}

func (f *Findings) towersUnknown() bool {
	return slices.ContainsFunc(f.Refused, func(r Refusal) bool { return r.Finding == findTowers })
}

// sumByVolume adds up the bytes of volumes, and names the volume or how many there are.
func sumByVolume[T any](list []T, of func(T) (volume string, bytes float64)) (sum float64, volumes string) {
	bytes := map[string]float64{}
	var names []string
	for _, x := range list {
		name, n := of(x)
		if _, ok := bytes[name]; !ok {
			names = append(names, name)
		}
		bytes[name] += n
		sum += n
	}
	if len(names) == 1 {
		return sum, "volume " + names[0]
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(bytes[b], bytes[a]) })
	return sum, fmt.Sprintf("%d volumes, most of it to %s", len(names), names[0])
}

// Sentence is the verdict on a run.
func (r *Run) Sentence() string {
	switch {
	case r.Findings != nil:
		return r.Findings.Sentence()
	case len(r.Caches) > 0:
		return r.cacheSentence()
	case r.Idle:
		return "No volume was read, written or held anything in the write cache during this run, so there is nothing to find or to draw."
	}
	return "There is nothing to report about this run."
}

// cacheSentence is the verdict on a run with host caches and without an array's counters. What a cache gains is
// not known if the datastore was never seen to do what its host does.
func (r *Run) cacheSentence() string {
	best, used, known := r.bestCache()
	whose, rest := "", ""
	if n := used - known; n > 0 {
		whose = " whose gain is known"
		rest = fmt.Sprintf("; for %d other %s the datastore's latency is not known", n, noun(n, "cache", "caches"))
	}
	switch {
	case used == 0:
		return "No host read or wrote through a cache during this run."
	case known == 0:
		return "The gain of the caches is unknown: the datastore was not seen to read, or to write, while hosts did."
	case best.Saved <= 0:
		return fmt.Sprintf("No cache%s spared its host any waiting: %s, the best of %d, answered in %.3g ms%s.", whose, best.Disk, known, best.Effective, rest)
	}
	return fmt.Sprintf("The cache of %s, the best of %d, spared its host %.3g s of waiting a second: it answered in %.3g ms, and the datastore would have taken %.3g ms%s.",
		best.Disk, known, best.Saved, best.Effective, best.Datastore, rest)
}

// bestCache returns the cache that is known to spare its host the most, how many hosts have used, and of how many of
// these it is known.
func (r *Run) bestCache() (best Gain, used, known int) {
	for _, g := range PerformanceMap(r.Caches, 0, math.Inf(1)) { // in this order
		if !(g.IOPS > 0) {
			continue
		}
		if used++; !g.Saved.Known() {
			continue
		}
		if known++; known == 1 {
			best = g
		}
	}
	return best, used, known
}

// Verdict is the one sentence that a report opens with. Of several runs it says how many have findings, of how many
// their counters do not tell, and what of the worst.
func (r *Report) Verdict() string {
	if len(r.Runs) == 1 {
		return r.Runs[0].Sentence()
	}
	n := runCounts{}
	for i := range r.Runs {
		n.add(&r.Runs[i])
	}
	if n.counted == 0 {
		return r.verdictWithoutCounters(n)
	}
	says := n.undercoverClause()
	if n.idle > 0 {
		says += fmt.Sprintf("; in %d nothing happened", n.idle)
	}
	if n.bare > 0 {
		says += fmt.Sprintf("; %d more %s no counters of an array", n.bare, noun(n.bare, "has", "have"))
	}
	switch {
	case n.worst != nil && n.bare > 0 && n.slowUntold > 0:
		return fmt.Sprintf("%s; the highest response that counters show is that of %s, %s, and of %d they do not show, for some pools, how slow responses were.", says, n.worst.Name, millis(n.height), n.slowUntold)
	case n.worst != nil && n.bare > 0:
		return fmt.Sprintf("%s; the highest response that counters show is that of %s, %s.", says, n.worst.Name, millis(n.height))
	case n.worst != nil && n.slowUntold > 0:
		return fmt.Sprintf("%s; the highest response that they show is that of %s, %s, and of %d they do not show, for some pools, how slow responses were.", says, n.worst.Name, millis(n.height), n.slowUntold)
	case n.worst != nil:
		return fmt.Sprintf("%s; the highest response is that of %s, %s.", says, n.worst.Name, millis(n.height))
	case n.slowUntold > 0:
		return fmt.Sprintf("%s; of %d the counters do not show, for some pools, how slow responses were.", says, n.slowUntold)
	}
	if n.bare > 0 {
		return fmt.Sprintf("%s; no sample that counters show has a mean response of %s.", says, towerFrom)
	}
	return fmt.Sprintf("%s; no sample has a mean response of %s.", says, towerFrom)
}

// undercoverClause says how many runs of those that have counters, or in which nothing happened, have undercover writes.
func (n *runCounts) undercoverClause() string {
	if runs := n.counted + n.idle; runs > 1 {
		says := fmt.Sprintf("In none of %d runs is a write below what hosts see proved", runs)
		if n.undercover > 0 {
			says = fmt.Sprintf("Of %d runs, %d %s writes that hosts do not see", runs, n.undercover, noun(n.undercover, "has", "have"))
		}
		if n.labelled > 0 {
			says += fmt.Sprintf("; of %d the array's origin label alone says so", n.labelled)
		}
		if n.untold > 0 {
			says += fmt.Sprintf("; of %d the counters do not show it", n.untold)
		}
		return says
	}
	switch {
	case n.undercover > 0:
		return "The one run with counters has writes that hosts do not see"
	case n.labelled > 0:
		return "The counters of the one run that has some prove no write below what hosts see; the array's origin label alone says so"
	case n.untold > 0:
		return "The counters of the one run that has some do not show what was written below what hosts see"
	}
	return "The counters of the one run that has some prove no write below what hosts see"
}

// verdictWithoutCounters is that of runs of which nobody has an array's counters: in some nothing happened, and others
// have host caches alone.
func (r *Report) verdictWithoutCounters(n runCounts) string {
	var best, unclear *Run
	saved := Amount(math.Inf(-1))
	for i := range r.Runs {
		g, used, known := r.Runs[i].bestCache()
		if known > 0 && g.Saved > saved {
			best, saved = &r.Runs[i], g.Saved
		}
		if used > known {
			unclear = &r.Runs[i]
		}
	}
	if best != nil && saved <= 0 {
		g, _, _ := best.bestCache()
		if unclear != nil {
			return fmt.Sprintf("In none of %d runs did a cache whose gain is known spare its host any waiting: the best, %s of %s, answered in %.3g ms; the gain of some caches is not known.", len(r.Runs), g.Disk, best.Name, g.Effective)
		}
		return fmt.Sprintf("In none of %d runs did a cache spare its host any waiting: the best, %s of %s, answered in %.3g ms.", len(r.Runs), g.Disk, best.Name, g.Effective)
	}
	switch {
	case best != nil && unclear != nil:
		return fmt.Sprintf("Of %d runs, %s has the cache that is known to spare its host the most; of some caches it is not known. %s", len(r.Runs), best.Name, best.Sentence())
	case best != nil:
		return fmt.Sprintf("Of %d runs, %s has the cache that spares its host the most. %s", len(r.Runs), best.Name, best.Sentence())
	case unclear != nil:
		return unclear.Sentence()
	case n.idle == len(r.Runs):
		return fmt.Sprintf("No volume was read, written or held anything in the write cache during these %d runs, so there is nothing to find or to draw.", n.idle)
	}
	return fmt.Sprintf("There is nothing to report about these %d runs.", len(r.Runs))
}

// runCounts is how many of several runs say what.
type runCounts struct {
	counted    int // have counters of an array
	undercover int // prove undercover writes
	labelled   int // do not, and have the array's label of some
	untold     int // cannot tell
	slowUntold int // cannot tell of some pool how slow it was
	idle       int // had nothing to do
	bare       int // have no counters of an array
	worst      *Run
	height     float64 // its highest tower
}

func (n *runCounts) add(x *Run) {
	f := x.Findings
	if f == nil {
		if x.Idle {
			n.idle++
		} else {
			n.bare++
		}
		return
	}
	n.counted++
	switch {
	case len(f.Undercover) > 0:
		n.undercover++
	case len(f.Labelled) > 0:
		n.labelled++
	case f.Floor == nil && !f.NothingLabelled():
		n.untold++
	}
	t := f.highest(func(*Tower) bool { return true })
	if t == nil && f.towersUnknown() {
		n.slowUntold++
	}
	if t != nil && t.Height > n.height {
		n.worst, n.height = x, t.Height
	}
}

// noun is one of two words, the first for one and the second for another number.
func noun(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// column explains a column of a table.
type column struct{ Name, Text string }

// columns explains those of the tables of findings, under the names that the text has for them in capitals.
var columns = struct{ Pools, Holders, Undercover, Labelled, Towers []column }{
	Pools: []column{
		{"mean, peak", "how full the pool's partition of the write cache was, over all samples and at its highest"},
		{"cap", "what the pool may hold of the cache"},
		{"full for", "the time of the samples in which it was at its cap; since: when the first of them began"},
	},
	Holders: []column{
		{"held, of cap", "what the volume had in the cache when the partition was full"},
		{"host writes", "what hosts wrote to it then, a second"},
		{"explained", "whether hosts have written what it held; NO means that an offload has"},
		{"busiest else", "for comparison: the volume of the pool that hosts wrote most, its writes, and what it held"},
	},
	Undercover: []column{
		{"at least", "bytes that somebody must have written and no host has sent; what was replaced in the cache does not show"},
		{"hosts wrote", "what hosts sent to the volume in the same time"},
		{"margin", "how many times what noise in the counters could make of nothing; 1 is the least that counts"},
	},
	Labelled: []column{
		{"origin", "the command by which the array says it was written: xcopy, odx, write_same, unmap"},
		{"proved without it", "whether the counters that real arrays have say so, too"},
	},
	Towers: []column{
		{"height, usually", "the mean response of all I/O in the worst sample, and outside towers"},
		{"load", "I/Os a second, against those outside: below 1 it is not the load that made it"},
		{"volumes", "how many of the active ones were hit"},
		{"cause", "undercover: an offload filled the cache; hosts: they did; cache: it was full, and nobody can be named; back end: it was not full, or the disks took less than at other times"},
		{"source", "the volume that filled the cache"},
		{"offload gone, cap doubled, cap gone", "by how much less writes wait when the firmware runs a model, fitted to the tower, without the offload or with more cache for the pool; no help: not at either end of what the counters leave open"},
	},
}

// writeColumns explains the columns of the tables that there are.
func (f *Findings) writeColumns(b *strings.Builder) {
	seen := map[string]bool{}
	b.WriteString("\nColumns\n")
	for _, t := range [...]struct {
		any     bool
		columns []column
	}{{len(f.Pools) > 0, columns.Pools}, {len(f.Holders) > 0, columns.Holders}, {len(f.Undercover) > 0, columns.Undercover},
		{len(f.Labelled) > 0, columns.Labelled}, {len(f.Towers) > 0, columns.Towers}} {
		for _, c := range t.columns {
			if name := strings.ToUpper(c.Name); t.any && !seen[name] {
				seen[name] = true
				fmt.Fprintf(b, "  %s: %s.\n", name, c.Text)
			}
		}
	}
}
