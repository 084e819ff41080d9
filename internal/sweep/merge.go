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
	again   int // rows of runs that failed and were run again
	useless int // rows without all columns of the plan
}

// Merged says what rows were put together.
type Merged struct {
	Runs    int `json:"runs"`    // of the plan
	Missing int `json:"missing"` // without a row
	Failed  int `json:"failed"`  // whose row has an error
	Files   int `json:"files"`
	Equal   int `json:"equal"` // rows that appeared again with the same figures, and count once
	Again   int `json:"again"` // rows of runs that failed, and were run again with another result
	Other   int `json:"other"` // rows that are not of this plan
	// Unknown are the figures of which no run has a value.
	Unknown []string `json:"unknown,omitempty"`
}

// rowFiles returns the files of rows in folders; what is named itself is one.
func rowFiles(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		if filepath.Ext(path) == ".parquet" {
			names = append(names, path)
			continue
		}
		list, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("rows: %w", err)
		}
		for _, e := range list {
			if n := e.Name(); filepath.Ext(n) == ".parquet" && !strings.HasPrefix(n, ".") {
				names = append(names, filepath.Join(path, n))
			}
		}
	}
	return names, nil
}

// read collects the rows of folders and files that have all columns of the plan. A hash with two
// different rows is an error.
func (p *Plan) read(paths []string) (*found, error) {
	f := &found{rows: map[string]tidy.Row{}, from: map[string]string{}}
	columns := p.columns()
	names, err := rowFiles(paths)
	if err != nil {
		return nil, err
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
	return f, nil
}

// errOther ends the scan of a file without the columns of the plan.
var errOther = errors.New("rows of another plan")

// ended returns the hashes of the runs that have a row with all columns of the plan in a folder, and whether each of
// them failed. It keeps nothing else of the rows: a folder may hold more than memory does.
func (p *Plan) ended(dir string) (map[string]bool, error) {
	columns := p.columns()
	names, err := rowFiles([]string{dir})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, name := range names {
		err := tidy.ScanFile(name, func(have []tidy.Column) ([]int, error) {
			var at []int
			for _, c := range columns {
				if i := slices.Index(have, c); i < 0 {
					return nil, errOther
				} else if c == fixed[0] || c == fixed[errorColumn] {
					at = append(at, i)
				}
			}
			return at, nil
		}, func(r tidy.Row) error {
			hash, ok := r[0].(string)
			if !ok {
				return errors.New("a row has no hash")
			}
			failed, twice := out[hash]
			out[hash] = r[1] != nil && (failed || !twice)
			return nil
		})
		if err != nil && !errors.Is(err, errOther) {
			return nil, fmt.Errorf("rows: %w", err)
		}
	}
	return out, nil
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
			if a, b := was[errorColumn], row[errorColumn]; a != b && (a != nil || b != nil) {
				// A run that failed was run again. What ended well counts, else the same failure wherever the rows are.
				if f.again++; b == nil || a != nil && compareText(b, a) < 0 {
					f.rows[hash], f.from[hash] = row, name
				}
				continue
			}
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
	m.Files, m.Equal, m.Again, m.Other = f.files, f.equal, f.again, len(f.rows)-len(used)+f.useless
	if m.Missing > 0 {
		err = fmt.Errorf("%w: %d of %d, the first is run %d; repeat the sweep with the same folder, which runs these only", errMissing, m.Missing, p.total, first)
	}
	return t, m, err
}
