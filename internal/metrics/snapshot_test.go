package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sourceFunc is a Source.
type sourceFunc func(Emitter)

func (f sourceFunc) Emit(e Emitter) { f(e) }

// lockProbe tells whether it is held.
type lockProbe struct{ held, taken int }

func (l *lockProbe) Lock()   { l.held++; l.taken++ }
func (l *lockProbe) Unlock() { l.held-- }

func TestSourcesEmitUnderTheLock(t *testing.T) {
	var l lockProbe
	var held []int
	src := sourceFunc(func(e Emitter) { held = append(held, l.held); e.Value(CacheSize, 1) })
	got := Collect(&l, src, src)
	if l.taken != 1 || l.held != 0 || !slices.Equal(held, []int{1, 1}) {
		t.Errorf("taken %d times, held %v while the sources emitted", l.taken, held)
	}
	if len(got) != 1 || got[0].Family != CacheSize || got[0].Value != 2 {
		t.Errorf("got %+v", got)
	}
}

var kindNames = map[Kind]string{Counter: "counter", Gauge: "gauge", Histo: "histogram"}

var (
	rowRE  = regexp.MustCompile("(?m)^\\| `(arraysim_[a-z_]+)` \\| (\\w+) \\| ([a-z_, ]*?) *\\| (.+) \\|$")
	nameRE = regexp.MustCompile(`arraysim_[a-z_]+`)
)

func TestDocumentedCounters(t *testing.T) {
	b, err := os.ReadFile("../../docs/counters.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	rows := rowRE.FindAllStringSubmatch(doc, -1)
	known := map[string]bool{}
	for i, f := range All() {
		known[f.Name] = true
		if i >= len(rows) {
			t.Errorf("docs/counters.md has no row for %s", f.Name)
			continue
		}
		got := rows[i]
		if want := strings.Join(f.Labels, ", "); got[1] != f.Name || got[2] != kindNames[f.Kind] || got[3] != want {
			t.Errorf("row %d of docs/counters.md is %q, want %s, %s, labels %q", i+1, got[1:4], f.Name, kindNames[f.Kind], want)
		}
	}
	if len(rows) > len(All()) {
		t.Errorf("docs/counters.md has %d rows, there are %d families", len(rows), len(All()))
	}
	for _, name := range nameRE.FindAllString(doc, -1) {
		if base := strings.TrimSuffix(name, "_bucket"); !known[base] {
			t.Errorf("docs/counters.md speaks of %s, which does not exist", name)
		}
	}
}
