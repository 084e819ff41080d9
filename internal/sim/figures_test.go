package sim

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
)

// docTable is a table of a document whose figures come from a scenario, in testdata/figures.yaml.
type docTable struct {
	Document string `yaml:"document"`
	Section  string `yaml:"section"`
	Table    int    `yaml:"table"` // which one of the section, from 1
	Scenario string `yaml:"scenario"`
	// All: the figures are those of all columns behind the first, and not of the column "ours".
	All bool `yaml:"all"`
	// Each are the figures of a row that has none of its own.
	Each []*docFigure `yaml:"each"`
	Rows []docRow     `yaml:"rows"`
}

type docRow struct {
	Row      string `yaml:"row"` // the first cell
	Scenario string `yaml:"scenario"`
	Case     string `yaml:"case"` // in which its figures are, if they do not name another
	// Ours has a figure for each number, in their order; a null is a number that is no figure of a run.
	Ours []*docFigure `yaml:"ours"`
	// Unchecked says why nothing of the row is compared.
	Unchecked string `yaml:"unchecked"`
}

// docFigure is a figure of a run: (value / times - less) * scale. With Of, which is case/what of an expectation, it is
// that one's.
type docFigure struct {
	Of        string   `yaml:"of"`
	Case      string   `yaml:"case"`
	Value     string   `yaml:"value"`
	At        Duration `yaml:"at"`
	Over      Duration `yaml:"over"`
	Times     string   `yaml:"times"`
	TimesCase string   `yaml:"times_case"`
	TimesAt   Duration `yaml:"times_at"`
	Raw       bool     `yaml:"raw"` // without the expectation's times
	Less      float64  `yaml:"less"`
	Scale     float64  `yaml:"scale"`
	Most      bool     `yaml:"most"`   // the document gives a bound of its distance from 0
	Within    float64  `yaml:"within"` // the document rounds to more than the last digit
	// Against is what the column "difference" compares with, the expectation's want by default; Alone: it does not.
	Against float64 `yaml:"against"`
	Alone   bool    `yaml:"alone"`
}

// UnmarshalYAML takes an expectation's name alone, too.
func (f *docFigure) UnmarshalYAML(text []byte) error {
	type plain docFigure
	if yaml.Unmarshal(text, &f.Of) == nil {
		return nil
	}
	return yaml.UnmarshalWithOptions(text, (*plain)(f), yaml.Strict())
}

// expect returns the expectation that has the figure's value.
func (f *docFigure) expect(s *Scenario, name string) (Expect, error) {
	var e Expect
	if f.Of != "" {
		of, what, _ := strings.Cut(f.Of, "/")
		i := slices.IndexFunc(s.Expect, func(e Expect) bool { return e.Case == of && e.What == what })
		if i < 0 {
			return e, fmt.Errorf("%s has no expectation %q of the case %q", s.Name, what, of)
		}
		e = s.Expect[i]
	}
	for _, x := range []struct{ to, with *string }{{&e.Case, &name}, {&e.Case, &f.Case}, {&e.Value, &f.Value}, {&e.Times, &f.Times}, {&e.TimesCase, &f.TimesCase}} {
		if *x.with != "" {
			*x.to = *x.with
		}
	}
	for _, x := range []struct{ to, with *Duration }{{&e.At, &f.At}, {&e.Over, &f.Over}, {&e.TimesAt, &f.TimesAt}} {
		if *x.with != 0 {
			*x.to = *x.with
		}
	}
	if f.Raw {
		e.Times, e.TimesCase, e.Want = "", "", nil
	}
	if e.Value == "" || !slices.ContainsFunc(s.Cases, func(c Case) bool { return c.Name == e.Case }) {
		return e, fmt.Errorf("%s: %q in the case %q is no figure", s.Name, e.Value, e.Case)
	}
	return e, nil
}

var docNumber = regexp.MustCompile(`[-+]?\d[\d,]*(?:\.\d+)?`)

// printed is a number as a document has it.
type printed struct {
	text  string
	value float64
	half  float64 // of the last digit
}

func numbers(cell string) (out []printed) {
	for _, text := range docNumber.FindAllString(cell, -1) {
		text = strings.TrimRight(text, ",")
		v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			panic(err) // the pattern lets nothing else through
		}
		_, digits, _ := strings.Cut(text, ".")
		out = append(out, printed{text, v, math.Pow10(-len(digits)) / 2})
	}
	return out
}

// is tells whether the number is this one, rounded as it is printed.
func (p printed) is(v float64) bool { return math.Abs(v-p.value) <= p.half*(1+1e-6) }

// as prints a value with the number's digits.
func (p printed) as(v float64) string {
	_, digits, _ := strings.Cut(p.text, ".")
	sign := ""
	if strings.HasPrefix(p.text, "+") && v >= 0 {
		sign = "+"
	}
	return sign + strconv.FormatFloat(v, 'f', len(digits), 64)
}

// docRows are the rows below the head of a table, by cells.
type docRows struct {
	head []string
	rows [][]string
}

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// tablesOf returns the tables of a document by section, and which of them have a column "ours".
func tablesOf(text string) (tables map[string][]docRows) {
	tables = map[string][]docRows{}
	section, within := "", false
	for line := range strings.Lines(text) {
		title, heading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		switch {
		case heading && strings.HasPrefix(line, "#"):
			section, within = strings.TrimSpace(title), false
		case !strings.HasPrefix(line, "|"):
			within = false
		case !within:
			within = true
			tables[section] = append(tables[section], docRows{head: cellsOf(line)})
		case !strings.HasPrefix(line, "| ---"):
			last := &tables[section][len(tables[section])-1]
			last.rows = append(last.rows, cellsOf(line))
		}
	}
	return tables
}

// docs are the tables of figures and the documents' own.
type docs struct {
	mapped []docTable
	tables map[string]map[string][]docRows
}

var readDocs = sync.OnceValues(func() (*docs, error) {
	d := &docs{tables: map[string]map[string][]docRows{}}
	text, err := os.ReadFile("../../testdata/figures.yaml")
	if err == nil {
		err = yaml.UnmarshalWithOptions(text, &d.mapped, yaml.Strict())
	}
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		d.tables[filepath.Base(file)] = tablesOf(string(text))
	}
	return d, nil
})

// table returns a mapped table as it is in its document.
func (d *docs) table(m *docTable) (*docRows, error) {
	tables := d.tables[m.Document][m.Section]
	if n := max(m.Table, 1); n <= len(tables) {
		return &tables[n-1], nil
	}
	return nil, fmt.Errorf("docs/%s has no table %d in the section %q", m.Document, max(m.Table, 1), m.Section)
}

// column returns the cell of a row below this head, or nothing.
func (r *docRows) column(row []string, head string) string {
	if i := slices.Index(r.head, head); i >= 0 && i < len(row) {
		return row[i]
	}
	return ""
}

// figures returns a row's numbers and what they are.
func (m *docTable) figures(r *docRows, i int) ([]printed, []*docFigure) {
	of := m.Rows[i].Ours
	if of == nil {
		of = m.Each
	}
	if m.All {
		return numbers(strings.Join(r.rows[i][1:], " | ")), of
	}
	return numbers(r.column(r.rows[i], "ours")), of
}

// TestFiguresAreMapped: every table of the documents with a column of ours is in testdata/figures.yaml, row by row and
// number by number, so that TestScenarios compares it with what the scenarios give.
func TestFiguresAreMapped(t *testing.T) {
	d, err := readDocs()
	if err != nil {
		t.Fatal(err)
	}
	names, err := scenarioNames()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strangers(d.mapped, names) {
		t.Error(text)
	}
	mapped := map[*docRows]bool{}
	for k := range d.mapped {
		m := &d.mapped[k]
		where := m.Document + ", " + m.Section
		r, err := d.table(m)
		if err != nil {
			t.Error(err)
			continue
		}
		mapped[r] = true
		if len(m.Rows) != len(r.rows) {
			t.Errorf("%s: the table has %d rows, testdata/figures.yaml %d", where, len(r.rows), len(m.Rows))
			continue
		}
		for i := range m.Rows {
			if m.Rows[i].Row != r.rows[i][0] {
				t.Errorf("%s: row %d is %q, in testdata/figures.yaml %q", where, i+1, r.rows[i][0], m.Rows[i].Row)
				continue
			}
			if m.Rows[i].Unchecked != "" {
				continue
			}
			if have, of := m.figures(r, i); len(have) != len(of) {
				t.Errorf("%s, %s: the document has %d numbers, testdata/figures.yaml %d: %v", where, m.Rows[i].Row, len(have), len(of), have)
			}
		}
	}
	for document, sections := range d.tables {
		for section, tables := range sections {
			for i := range tables {
				if slices.Contains(tables[i].head, "ours") && !mapped[&tables[i]] {
					t.Errorf("docs/%s, %s: table %d has a column of ours, and is not in testdata/figures.yaml", document, section, i+1)
				}
			}
		}
	}
}

// scenarioNames returns the names of the scenarios, by which figures are compared.
func scenarioNames() (names []string, err error) {
	files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var s struct{ Name string }
		if err := yaml.Unmarshal(text, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		names = append(names, s.Name)
	}
	return names, nil
}

// strangers returns the tables and rows whose scenario does not exist: nobody would compare their figures.
func strangers(mapped []docTable, names []string) (bad []string) {
	for k := range mapped {
		m := &mapped[k]
		for i := range m.Rows {
			name := m.Rows[i].Scenario
			if name == "" {
				name = m.Scenario
			}
			if !slices.Contains(names, name) {
				bad = append(bad, fmt.Sprintf("testdata/figures.yaml: %s, %s, %s: there is no scenario %q", m.Document, m.Section, m.Rows[i].Row, name))
			}
		}
	}
	return bad
}

// wrongFigures returns what the documents say otherwise than these runs of a scenario. Cases that are out did not run.
func wrongFigures(d *docs, s *Scenario, runs map[string]*Run, out map[string]bool) (bad []string, compared int) {
	for k := range d.mapped {
		m := &d.mapped[k]
		r, err := d.table(m)
		if err != nil {
			continue // TestFiguresAreMapped tells
		}
		for i := range min(len(m.Rows), len(r.rows)) {
			row := &m.Rows[i]
			scenario := row.Scenario
			if scenario == "" {
				scenario = m.Scenario
			}
			if scenario != s.Name || row.Unchecked != "" {
				continue
			}
			wrong, n := row.wrong(m, r, i, s, runs, out)
			for _, text := range wrong {
				bad = append(bad, fmt.Sprintf("docs/%s, %s, %s: %s", m.Document, m.Section, row.Row, text))
			}
			compared += n
		}
	}
	return bad, compared
}

func (row *docRow) wrong(m *docTable, r *docRows, i int, s *Scenario, runs map[string]*Run, out map[string]bool) (bad []string, compared int) {
	have, of := m.figures(r, i)
	differences := numbers(r.column(r.rows[i], "difference"))
	var apart []float64
	for k := range min(len(have), len(of)) {
		f := of[k]
		if f == nil {
			continue
		}
		e, err := f.expect(s, row.Case)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		if out[e.Case] || out[e.TimesCase] {
			differences = nil
			continue
		}
		v, factor, err := e.figures(runs)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		v /= factor
		if against := f.Against; !f.Alone && (against != 0 || e.Want != nil) {
			if against == 0 {
				against = *e.Want
			}
			apart = append(apart, (v/against-1)*100)
		}
		v -= f.Less
		if f.Scale != 0 {
			v *= f.Scale
		}
		compared++
		have[k].half = max(have[k].half, f.Within)
		if f.Most && math.Abs(v) > have[k].value || !f.Most && !have[k].is(v) {
			bad = append(bad, fmt.Sprintf("%s is %s (%v)", have[k].text, have[k].as(v), v))
		}
	}
	if len(differences) == 0 {
		return bad, compared
	}
	if len(differences) != len(apart) {
		return append(bad, fmt.Sprintf("%d differences, and %d figures that are compared with the document", len(differences), len(apart))), compared
	}
	for k, p := range differences {
		compared++
		if !p.is(apart[k]) {
			bad = append(bad, fmt.Sprintf("the difference of %s %% is %s %%", p.text, p.as(apart[k])))
		}
	}
	return bad, compared
}

// TestFiguresBite: one digit that is wrong is found, in the column of ours, in the difference, and in all columns.
func TestFiguresBite(t *testing.T) {
	s, err := Parse([]byte(little + `
  - {kind: fitted, what: latency, case: c, value: job.load.latency_ms, document: "0.1", fitted: [cache.write], want: 0.1, within: 90}
cases: [{name: c, set: {}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Case(s.Cases[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := carryOut(c)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]*Run{"c": r}
	ms := figureOf(t, r, "job.load.latency_ms", 0, 0)
	var one []docTable
	if err := yaml.UnmarshalWithOptions([]byte(`
- {document: d.md, section: S, scenario: little, rows: [{row: first, ours: [c/latency, ~]}]}
- {document: d.md, section: S, table: 2, scenario: little, all: true, each: [{value: job.load.latency_ms}, {value: job.load.latency_ms, scale: 1000}], rows: [{row: second, case: c}]}
`), &one, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if bad := strangers(one, []string{"little"}); len(bad) != 0 {
		t.Error(bad)
	}
	if bad := strangers(one, []string{"littel"}); len(bad) != 2 {
		t.Errorf("of two rows without a scenario: %q", bad)
	}
	for _, x := range []struct {
		ours, difference, more float64
		says                   string
	}{
		{ms, (ms/0.1 - 1) * 100, ms * 1000, ""},
		{ms + 0.0002, (ms/0.1 - 1) * 100, ms * 1000, fmt.Sprintf("S, first: %.4f is %.4f", ms+0.0002, ms)},
		{ms, (ms/0.1-1)*100 + 0.2, ms * 1000, "S, first: the difference of"},
		{ms, (ms/0.1 - 1) * 100, ms*1000 + 2, "S, second: "},
	} {
		text := fmt.Sprintf("# T\n\n## S\n\n| | document | ours | difference |\n| --- | --- | --- | --- |\n| first | 0.1 ms | %.4f ms in 1 s | %+.1f %% |\n\n| | a | b |\n| --- | --- | --- |\n| second | %.4f | %.0f |\n",
			x.ours, x.difference, ms, x.more)
		d := &docs{mapped: one, tables: map[string]map[string][]docRows{"d.md": tablesOf(text)}}
		bad, compared := wrongFigures(d, s, runs, nil)
		if got := strings.Join(bad, "\n"); compared != 4 || (x.says == "") != (got == "") || !strings.Contains(got, x.says) {
			t.Errorf("%d figures compared, got %q, want %q in\n%s", compared, got, x.says, text)
		}
		if bad, _ := wrongFigures(d, s, runs, map[string]bool{"c": true}); len(bad) > 0 {
			t.Errorf("of a case that did not run: %v", bad)
		}
	}
}
