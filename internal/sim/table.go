package sim

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Columns returns what a table over runs of this scenario shows.
func (s *Scenario) Columns(r *Run) []Column {
	if len(s.Table) > 0 {
		return s.Table
	}
	var out []Column
	for _, j := range r.jobs {
		figures := []string{"seconds", "gb_s"}
		if j.spec.Kind == "load" {
			figures = []string{"iops", "latency_ms", "p99_ms"}
		}
		for _, f := range figures {
			out = append(out, Column{Title: j.spec.Name + " " + f, Value: "job." + j.spec.Name + "." + f})
		}
	}
	for _, p := range r.series.pools {
		for _, f := range []string{"fullness_max", "write_peak_ms", "tower_seconds"} {
			out = append(out, Column{Title: p.name + " " + f, Value: "pool." + p.name + "." + f})
		}
	}
	return out
}

// WriteTable prints figures of several runs, a row each.
func WriteTable(w io.Writer, cols []Column, grid []*Scenario, runs []*Run) {
	rows := [][]string{{""}}
	for _, c := range cols {
		rows[0] = append(rows[0], c.Title)
	}
	for i, r := range runs {
		row := []string{grid[i].Name}
		for _, c := range cols {
			v, err := r.Value(c.Value, c.At, c.Over)
			if err != nil {
				row = append(row, "-")
				continue
			}
			row = append(row, figure(v))
		}
		rows = append(rows, row)
	}
	writeRows(w, rows, 1)
}

// WriteOutcomes prints expectations (document, ours, difference), how many there are of each kind,
// and by parameter what it was fitted to and what it predicts.
func WriteOutcomes(w io.Writer, outcomes []Outcome) {
	rows := [][]string{{"what", "kind", "document", "expected", "ours", "difference", ""}}
	for _, o := range outcomes {
		ok := "ok"
		if !o.OK {
			ok = "NO"
		}
		ours := figure(o.Ours)
		if o.Replicates > 0 {
			ours += " +-" + figure(o.Half)
		}
		if o.Problem != "" {
			ours, ok = o.Problem, "NO"
		}
		rows = append(rows, []string{o.name(), string(o.Kind), o.Document, o.Want, ours, o.Difference, ok})
	}
	writeRows(w, rows, 4)
	t := Count(outcomes)
	fmt.Fprintf(w, "\n%s\n", t)
	if len(t.Parameters) == 0 {
		return
	}
	rows = [][]string{{"parameter", "fitted to", "predicts"}}
	for _, p := range t.Parameters {
		rows = append(rows, []string{p.Name, strings.Join(p.Fitted, "; "), strings.Join(p.Predicts, "; ")})
	}
	fmt.Fprintln(w)
	writeRows(w, rows, 3)
}

func (o *Outcome) name() string {
	if o.Case == "" {
		return o.What
	}
	return o.Case + ": " + o.What
}

// Totals count expectations.
type Totals struct {
	Kinds      map[Kind]int      `json:"kinds"`
	Hold       int               `json:"hold"`
	Parameters []FittedParameter `json:"parameters,omitempty"` // sorted by name
}

// FittedParameter is a parameter that was set by published figures: by which, and which others follow from it.
type FittedParameter struct {
	Name     string   `json:"name"`
	Fitted   []string `json:"fitted"`
	Predicts []string `json:"predicts,omitempty"`
}

// Count counts outcomes by kind.
func Count(outcomes []Outcome) Totals {
	t := Totals{Kinds: map[Kind]int{}}
	all := map[string]*FittedParameter{}
	of := func(name string) *FittedParameter {
		if all[name] == nil {
			all[name] = &FittedParameter{Name: name}
		}
		return all[name]
	}
	for i := range outcomes {
		o := &outcomes[i]
		t.Kinds[o.Kind]++
		if o.OK {
			t.Hold++
		}
		for _, k := range o.Fitted {
			of(k).Fitted = append(of(k).Fitted, o.name())
		}
		for _, k := range o.From {
			of(k).Predicts = append(of(k).Predicts, o.name())
		}
	}
	for _, k := range sortedKeys(all) {
		t.Parameters = append(t.Parameters, *all[k])
	}
	return t
}

// String says it in a line.
func (t Totals) String() string {
	n, parts := 0, []string{}
	for _, k := range Kinds {
		n += t.Kinds[k]
		part := fmt.Sprintf("%d %s", t.Kinds[k], k)
		if k == Fitted && t.Kinds[k] > 0 {
			part += fmt.Sprintf(" (by %d parameters)", len(t.Parameters))
			if len(t.Parameters) == 1 {
				part = strings.Replace(part, "parameters", "parameter", 1)
			}
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%d expectations: %s; %d hold", n, strings.Join(parts, ", "), t.Hold)
}

// writeRows aligns columns; those from number right on are numbers.
func writeRows(w io.Writer, rows [][]string, right int) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, x := range row {
			width[i] = max(width[i], utf8.RuneCountInString(x))
		}
	}
	for _, row := range rows {
		for i, x := range row {
			pad := width[i] - utf8.RuneCountInString(x)
			if i >= right {
				fmt.Fprintf(w, "%*s%s", pad, "", x)
			} else {
				fmt.Fprintf(w, "%s%*s", x, pad, "")
			}
			if i < len(row)-1 {
				fmt.Fprint(w, "  ")
			}
		}
		fmt.Fprintln(w)
	}
}
