package sim

import (
	"fmt"
	"io"
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

// WriteOutcomes prints expectations: document, ours, difference.
func WriteOutcomes(w io.Writer, outcomes []Outcome) {
	rows := [][]string{{"what", "document", "expected", "ours", "difference", ""}}
	for _, o := range outcomes {
		ok := "ok"
		if !o.OK {
			ok = "NO"
		}
		ours := figure(o.Ours)
		if o.Problem != "" {
			ours, ok = o.Problem, "NO"
		}
		what := o.What
		if o.Case != "" {
			what = o.Case + ": " + what
		}
		rows = append(rows, []string{what, o.Document, o.Want, ours, o.Difference, ok})
	}
	writeRows(w, rows, 3)
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
