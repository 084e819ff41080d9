package sweep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/tidy"
)

// found is rows by their hash.
type found struct {
	rows    map[string]tidy.Row
	from    map[string]string // the file of a row
	files   int
	equal   int // rows that appeared again
	useless int // rows without all columns of the plan
}

// Merged says what rows were put together.
type Merged struct {
	Runs    int `json:"runs"`    // of the plan
	Missing int `json:"missing"` // without a row
	Failed  int `json:"failed"`  // whose row has an error
	Files   int `json:"files"`
	Equal   int `json:"equal"` // rows that appeared again with the same figures, and count once
	Other   int `json:"other"` // rows that are not of this plan
	// Unknown are the figures of which no run has a value.
	Unknown []string `json:"unknown,omitempty"`
}

// read collects the rows of folders and files that have all columns of the plan. A hash with two
// different rows is an error.
func (p *Plan) read(paths []string) (*found, error) {
	f := &found{rows: map[string]tidy.Row{}, from: map[string]string{}}
	columns := p.columns()
	for _, path := range paths {
		names := []string{path}
		if filepath.Ext(path) != ".parquet" {
			list, err := os.ReadDir(path)
			if err != nil {
				return nil, fmt.Errorf("rows: %w", err)
			}
			names = names[:0]
			for _, e := range list {
				if n := e.Name(); filepath.Ext(n) == ".parquet" && !strings.HasPrefix(n, ".") {
					names = append(names, filepath.Join(path, n))
				}
			}
		}
		for _, name := range names {
			t, err := tidy.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("rows: %w", err)
			}
			f.files++
			if err := f.add(t, columns, name); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

func (f *found) add(t *tidy.Table, columns []tidy.Column, name string) error {
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = t.Index(c.Name)
		if at[i] < 0 || t.Columns[at[i]].Kind != c.Kind {
			f.useless += len(t.Rows)
			return nil
		}
	}
	for _, r := range t.Rows {
		row := make(tidy.Row, len(columns))
		for i, k := range at {
			row[i] = r[k]
		}
		hash, ok := row[0].(string)
		if !ok {
			return fmt.Errorf("%s: a row has no hash", name)
		}
		if was := f.rows[hash]; was != nil {
			if i := firstDifference(was, row); i >= 0 {
				return fmt.Errorf("run %s has two results: %s is %v in %s and %v in %s; run both again with one version of the program and look for what differs",
					hash, columns[i].Name, was[i], f.from[hash], row[i], name)
			}
			f.equal++
			continue
		}
		f.rows[hash], f.from[hash] = row, name
	}
	return nil
}

// firstDifference returns the first column in which two rows differ, -1 if none.
func firstDifference(a, b tidy.Row) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// errMissing is what Merge returns with a table that has not all runs.
var errMissing = errors.New("runs are missing")

// Missing tells whether Merge failed because runs have no row yet; it has returned the others.
func Missing(err error) bool { return errors.Is(err, errMissing) }

// Merge puts the rows of the plan together: one a run, in the plan's order, with the run's number. The
// table depends on the plan alone, not on how the work was divided.
func (p *Plan) Merge(paths []string) (*tidy.Table, Merged, error) {
	m := Merged{Runs: p.total}
	f, err := p.read(paths)
	if err != nil {
		return nil, m, err
	}
	t := &tidy.Table{Columns: append([]tidy.Column{{Name: "run", Kind: tidy.Int}}, p.columns()...)}
	first := -1
	used := map[string]bool{}
	for i := range p.total {
		hash := p.Run(i).Hash
		row := f.rows[hash]
		if row == nil {
			if m.Missing++; first < 0 {
				first = i
			}
			continue
		}
		if row[errorColumn] != nil {
			m.Failed++
		}
		used[hash] = true
		t.Rows = append(t.Rows, append(tidy.Row{int64(i)}, row...))
	}
	for _, name := range p.figures {
		at := t.Index(name)
		if !slices.ContainsFunc(t.Rows, func(r tidy.Row) bool { return r[at] != nil }) && len(t.Rows) > 0 {
			m.Unknown = append(m.Unknown, name)
		}
	}
	m.Files, m.Equal, m.Other = f.files, f.equal, len(f.rows)-len(used)+f.useless
	if m.Missing > 0 {
		err = fmt.Errorf("%w: %d of %d, the first is run %d; repeat the sweep with the same folder, which runs these only", errMissing, m.Missing, p.total, first)
	}
	return t, m, err
}
