package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// removable are the quantities that a source may not have, each with what takes it away.
var removable = map[string]func(*volumeReading, *poolReading){
	needHost:     func(v *volumeReading, _ *poolReading) { v.bytes = unknown() },
	needLower:    func(v *volumeReading, _ *poolReading) { v.lower = math.NaN() },
	needHeld:     func(v *volumeReading, _ *poolReading) { v.held = math.NaN() },
	needOps:      func(v *volumeReading, _ *poolReading) { v.ops = unknown() },
	needTime:     func(v *volumeReading, _ *poolReading) { v.time = unknown() },
	needFullness: func(_ *volumeReading, p *poolReading) { p.full, p.peak, p.seconds = math.NaN(), math.NaN(), math.NaN() },
	needCap:      func(_ *volumeReading, p *poolReading) { p.cap = math.NaN() },
}

// without takes quantities out of a reading, of a part of the volumes.
func (r *reading) without(gone []string, of func(volume string) bool) {
	for _, what := range gone {
		for name, v := range r.volumes {
			if of(name) {
				removable[what](v, newPoolReading())
			}
		}
		for _, p := range r.pools {
			removable[what](newVolumeReading(""), p)
		}
	}
}

// text is what people read of findings.
func text(t *testing.T, f *Findings) string {
	t.Helper()
	f.Advice = advise(f)
	var b bytes.Buffer
	if err := f.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(f); err != nil {
		t.Errorf("findings are no JSON: %v", err)
	}
	return b.String()
}

// Whatever is missing, of whom and for how long: nobody is accused who is not with everything
// known to have been copied to, what lacks a quantity that it needs is refused by name, and no
// sentence says of what is not known that it was not.
func TestMissingCountersAreNoFindings(t *testing.T) {
	first := seedOf(t) + 300000
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first-300000)
	all := slices.Sorted(func(yield func(string) bool) {
		for what := range removable {
			if !yield(what) {
				return
			}
		}
	})
	for i := range 10 * modelRuns() {
		seed := first + i
		rng := rand.New(rand.NewPCG(seed, 97))
		kind := modelKinds[rng.IntN(len(modelKinds))]
		s := newModel(seed, kind, rng.IntN(2) == 0)
		var gone []string
		for _, what := range all {
			if rng.IntN(4) == 0 {
				gone = append(gone, what)
			}
		}
		everybody, always := rng.IntN(2) == 0, rng.IntN(3) > 0
		s.degrade = func(r *reading) {
			if always || rng.IntN(2) == 0 {
				r.without(gone, func(volume string) bool { return everybody || volume < "vol04" })
			}
		}
		f := detect(s.run())
		what := fmt.Sprintf("%s, seed %d, without %s (of all volumes: %v, always: %v)", kind, seed, strings.Join(gone, ", "), everybody, always)
		for _, u := range f.Undercover {
			if s.culprits[u.Volume] == 0 {
				t.Errorf("%s: %s is accused of %s", what, u.Volume, size(u.Bytes))
			}
		}
		report := text(t, f)
		lacks := func(q string) bool { return everybody && always && slices.Contains(gone, q) }
		refused := func(finding string) bool {
			return slices.ContainsFunc(f.Refused, func(r Refusal) bool { return r.Finding == finding })
		}
		for q, finding := range map[string]string{needHost: findUndercover, needLower: findUndercover, needHeld: findUndercover, needFullness: findPartition, needOps: findTowers, needTime: findTowers} {
			if lacks(q) && !refused(finding) {
				t.Errorf("%s: %s are not refused:\n%s", what, finding, report)
			}
		}
		if (lacks(needHost) || lacks(needHeld)) && (f.Floor != nil || len(f.Undercover) > 0 || !strings.Contains(report, "Undercover writes: unknown from these counters.")) {
			t.Errorf("%s: undercover writes are judged:\n%s", what, report)
		}
		if lacks(needFullness) {
			if strings.Contains(report, "had room") || slices.ContainsFunc(f.Towers, func(w Tower) bool { return w.Cause != "unknown" }) {
				t.Errorf("%s: a cause is named of towers:\n%s", what, report)
			}
		}
		if lacks(needHost) && slices.ContainsFunc(f.Towers, func(w Tower) bool { return w.Cause != "unknown" && w.Cause != "back end" }) {
			t.Errorf("%s: somebody is blamed for towers:\n%s", what, report)
		}
	}
}

// A column that another tool does not have is not zero: who destages is not accused for it.
func TestMappingWithoutAColumn(t *testing.T) {
	dir := t.TempDir()
	var rec Recorder
	recorded(t, 3, &rec)
	mappedFile(t, dir, rec.Data("live"))
	name := filepath.Join(dir, "mapping.yaml")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for column, needs := range map[string]string{"write_bytes": needHost, "held_bytes": needHeld, "lower_bytes": needLower, "writes": needOps} {
		lines := slices.DeleteFunc(strings.Split(string(whole), "\n"), func(l string) bool { return strings.HasPrefix(l, "  "+column+":") })
		if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o666); err != nil {
			t.Fatal(err)
		}
		f := detect(load1(t, filepath.Join(dir, "tool.csv"), Options{Mapping: name}))
		if !slices.ContainsFunc(f.Refused, func(r Refusal) bool { return slices.Contains(r.Missing, needs) }) {
			t.Errorf("without %s nothing is refused for it: %v", column, f.Refused)
		}
		if (column == "write_bytes" || column == "held_bytes") && len(f.Undercover) > 0 {
			t.Errorf("without %s: %v are accused", column, culprits(f))
		}
	}
}

// briefly is data of one volume, a second a sample, to which nothing happens but that in the
// fourth second so much is destaged at once; hosts write so much each second, and where it is
// replaced none of that leaves the cache.
func briefly(copied, hosts float64, replaced, exact bool) *Data {
	d := &Data{Exact: exact, Pools: []*Pool{{Name: "p", Full: make(Series, 12), Peak: make(Series, 12), Cap: make(Series, 12)}}}
	v := &Volume{Name: "v", Pool: "p", Span: make(Series, 12), Held: make(Series, 12), Lower: make(Series, 12)}
	for i := range 2 {
		v.Ops[i], v.Time[i], v.Host[i] = make(Series, 12), make(Series, 12), make(Series, 12)
	}
	for i := range 12 {
		d.Times = append(d.Times, int64(i+1)*1e9)
		v.Span[i], v.Host[write][i] = 1, hosts
		if !replaced {
			v.Lower[i] = hosts
		}
	}
	v.Lower[3] += copied
	d.Volumes = []*Volume{v}
	return d
}

// A copy of a second is found in samples of a second: what left the cache in a moment does not
// make it doubtful, what hosts wrote next to it does.
func TestACopyOfASecond(t *testing.T) {
	for _, c := range []struct {
		copied, hosts          float64
		replaced, exact, found bool
	}{
		{256 << 20, 0, false, true, true}, {256 << 20, 0, false, false, true}, {65 << 20, 0, false, true, true}, {63 << 20, 0, false, true, false},
		{256 << 20, 300e6, false, true, false}, {256 << 20, 10e6, false, true, true}, {256 << 20, 10e6, false, false, true}, {0, 300e6, false, true, false},
		{90e6, 20e6, true, true, false}, // hidden behind writes that never left the cache
	} {
		f := detect(briefly(c.copied, c.hosts, c.replaced, c.exact))
		if found := len(f.Undercover) > 0; found != c.found {
			t.Errorf("%+v: found %v", c, found)
		}
		said := text(t, f)
		if f.Floor == nil || !strings.Contains(said, "these counters prove nothing") {
			t.Fatalf("%+v: nothing is said of what they do not prove:\n%s", c, said)
		}
		// What was not found was less than what they claim to prove.
		if c.copied > 0 && !c.found && c.copied >= max(f.Floor.Bytes, f.Floor.VolumeBytes) {
			t.Errorf("%+v: it was not found, though %s are said to be enough", c, size(max(f.Floor.Bytes, f.Floor.VolumeBytes)))
		}
		if !c.found && (strings.Contains(said, "No undercover") || f.Verdict() == "") {
			t.Errorf("%+v: it is said that there was none:\n%s", c, said)
		}
		for _, u := range f.Undercover {
			if u.Margin < 1 || !c.replaced && c.copied/u.Bytes > 1.01 || c.copied/u.Bytes < 0.99 {
				t.Errorf("%+v: %+v", c, u)
			}
		}
	}
}

// What is not found is less than the floor that is told, whatever the scenario.
func TestNothingAboveTheFloorIsMissed(t *testing.T) {
	first := seedOf(t) + 200000
	t.Logf("seed %d; ARRAYSIM_SEED repeats it", first-200000)
	missed := 0
	for i := range 8 * modelRuns() {
		seed := first + i
		kind := modelKinds[i%uint64(len(modelKinds))]
		s := newModel(seed, kind, true)
		for _, v := range s.array.volumes { // copies of a few MB to some GB: about the floor
			v.copyBytes = 1e6 * math.Pow(2, 12*s.array.rng.Float64())
		}
		f := detect(s.run())
		for volume, bytes := range s.culprits {
			if bytes == 0 || f.accused(volume, 0, math.MaxInt) {
				continue
			}
			missed++
			if f.Floor == nil || bytes >= max(f.Floor.Bytes, f.Floor.VolumeBytes) && !partly(f, volume) {
				t.Errorf("%s, seed %d: %s with %s was missed, %v", kind, seed, volume, size(bytes), f.Floor)
			}
		}
	}
	if missed == 0 {
		t.Error("nothing was missed: the copies are too large to tell")
	}
}

func partly(f *Findings, volume string) bool {
	return slices.ContainsFunc(f.Refused, func(r Refusal) bool { return r.Finding == findUndercover && slices.Contains(r.Volumes, volume) })
}

// TestAmountsAsText: what is not known is written as such, in whatever format and unit.
func TestAmountsAsText(t *testing.T) {
	for want, got := range map[string]string{"unknown": (100 * Amount(math.NaN())).Text("%.1f %%"), "0.0 %": Amount(0).Text("%.1f %%"), "12.5 %": (100 * Amount(0.125)).Text("%.1f %%")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
