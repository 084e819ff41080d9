package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/tidy"
)

// fixed are the columns that every row has. A row whose error is not null has no figures.
var fixed = []tidy.Column{{Name: "hash", Kind: tidy.Text}, {Name: "scenario", Kind: tidy.Text}, {Name: "case", Kind: tidy.Text},
	{Name: "seed", Kind: tidy.Int}, {Name: "version", Kind: tidy.Text}, {Name: "error", Kind: tidy.Text}}

// columns are those of a row: what is fixed, parameters, figures.
func (p *Plan) columns() []tidy.Column {
	out := slices.Clone(fixed)
	for _, x := range p.params {
		out = append(out, x.column)
	}
	for _, f := range p.figures {
		out = append(out, tidy.Column{Name: f, Kind: tidy.Number})
	}
	return out
}

// Work is what part of a plan is carried out, and how.
type Work struct {
	// Shard of Shards: the runs whose number leaves this remainder. Shards 0 is all runs.
	Shard, Shards int
	// Jobs is how many runs go on at the same time; 0 is one a processor.
	Jobs int
	// Dir is the folder of the rows, which several processes and machines may share.
	Dir string
	// RetryFailed runs those again whose row has an error.
	RetryFailed bool
	// Progress, if there is one, is called after each run, by one goroutine at a time.
	Progress func(done, all int)
}

// Done is how far some work went.
type Done struct {
	Plan   int `json:"plan"`   // runs of the plan
	Shard  int `json:"shard"`  // of them in this shard
	Before int `json:"before"` // rows that were there
	Ran    int `json:"ran"`    // runs that ended now and whose rows are written
	Failed int `json:"failed"` // rows with an error, written now or before
	Files  int `json:"files"`  // written
}

// Rows are written when so many are waiting, or the first of them has waited for so long: what a crash
// costs at most.
const (
	flushRows = 1000
	flushTime = 5 * time.Second
)

// Execute carries out the runs of a shard whose rows are not in the folder yet. What has ended is in
// the folder when Execute returns, with ctx cancelled, too.
func (p *Plan) Execute(ctx context.Context, w Work) (Done, error) {
	d := Done{Plan: p.total}
	if w.Shards == 0 {
		w.Shards = 1
	}
	if w.Shards < 1 || w.Shard < 0 || w.Shard >= w.Shards {
		return d, fmt.Errorf("shard %d of %d: shards count from 0 to %d", w.Shard, w.Shards, w.Shards-1)
	}
	if err := os.MkdirAll(w.Dir, 0o777); err != nil {
		return d, fmt.Errorf("rows: %w", err)
	}
	have, err := p.ended(w.Dir)
	if err != nil {
		return d, err
	}
	var todo []int
	for i := w.Shard; i < p.total; i += w.Shards {
		d.Shard++
		hash := p.Run(i).Hash
		failed, ended := have[hash]
		if ended && !(failed && w.RetryFailed) {
			if d.Before++; failed {
				d.Failed++
			}
			continue
		}
		todo = append(todo, i)
	}
	if w.Jobs <= 0 {
		w.Jobs = runtime.GOMAXPROCS(0)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rows := make(chan tidy.Row)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(w.Jobs, len(todo)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(todo)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if row := p.one(ctx, p.Run(todo[i])); row != nil {
					rows <- row
				}
			}
		})
	}
	go func() { wg.Wait(); close(rows) }()
	err = p.collect(rows, &w, &d, stop)
	if err == nil && d.Before+d.Ran < d.Shard {
		err = fmt.Errorf("interrupted after %d of %d runs; the same command continues from there", d.Before+d.Ran, d.Shard)
	}
	return d, err
}

// collect writes rows in batches until there are no more. After an error it stops the runs and drops
// what still comes.
func (p *Plan) collect(rows <-chan tidy.Row, w *Work, d *Done, stop func()) error {
	var batch []tidy.Row
	var failed error
	ended := d.Before // runs, whether or not their rows are written yet
	tick := time.NewTicker(flushTime)
	defer tick.Stop()
	flush := func() {
		if len(batch) == 0 || failed != nil {
			return
		}
		if failed = p.write(w.Dir, batch); failed != nil {
			stop()
			return
		}
		d.Files++
		d.Ran += len(batch)
		for _, row := range batch {
			if row[errorColumn] != nil {
				d.Failed++
			}
		}
		batch = nil
	}
	for {
		select {
		case row, ok := <-rows:
			if !ok {
				flush()
				return failed
			}
			if failed != nil {
				continue
			}
			batch = append(batch, row)
			if ended++; w.Progress != nil {
				w.Progress(ended, d.Shard)
			}
			if len(batch) >= flushRows {
				flush()
			}
		case <-tick.C:
			flush()
		}
	}
}

const errorColumn = 5 // in fixed

// write leaves a file whose name is that of its rows, with all that is in them: the same rows written twice are one file,
// and what a run that failed gave when it was run again is another.
func (p *Plan) write(dir string, rows []tidy.Row) error {
	slices.SortFunc(rows, func(a, b tidy.Row) int { return compareText(a[0], b[0]) })
	columns := p.columns()
	h := sha256.New()
	for _, r := range rows {
		for i, v := range r {
			fmt.Fprintf(h, "%s %T %q\n", columns[i].Name, v, fmt.Sprint(v))
		}
	}
	name := filepath.Join(dir, "rows-"+hex.EncodeToString(h.Sum(nil)[:8])+".parquet")
	if err := tidy.WriteFile(name, &tidy.Table{Columns: columns, Rows: rows}); err != nil {
		return fmt.Errorf("rows: %w", err)
	}
	return nil
}

func compareText(a, b any) int {
	x, _ := a.(string)
	y, _ := b.(string)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// one carries out a run and returns its row, nil if ctx ended it. A run that cannot be built, or in which the
// program panics, is a row with an error: one point of a sweep does not end the others.
func (p *Plan) one(ctx context.Context, r Run) tidy.Row {
	row := tidy.Row{r.Hash, p.base.Name, nil, int64(r.Seed), p.version, nil}
	if r.Case != "" {
		row[2] = r.Case
	}
	for _, x := range p.params {
		row = append(row, x.cell(r.Values[x.key]))
	}
	figures, err := p.guarded(ctx, r)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		row[errorColumn] = err.Error()
	}
	return append(row, figures...)
}

// guarded is carryOut with a panic as an error that says how to see it again.
func (p *Plan) guarded(ctx context.Context, r Run) (figures []any, err error) {
	defer func() {
		if x := recover(); x != nil {
			figures = make([]any, len(p.figures))
			err = fmt.Errorf("panic: %v; %s", x, r.settings())
		}
	}()
	return p.carryOut(ctx, r)
}

// settings are those of `sim` that make the run alone.
func (r Run) settings() string {
	text := fmt.Sprintf("--seed %d", r.Seed)
	if r.Case != "" {
		text += " --case " + r.Case
	}
	for _, k := range slices.Sorted(maps.Keys(r.Values)) {
		text += fmt.Sprintf(" --set %s=%v", k, r.Values[k])
	}
	return text
}

// slice is how much simulated time passes between two looks at ctx.
const slice = int64(time.Second)

func (p *Plan) carryOut(ctx context.Context, r Run) ([]any, error) {
	figures := make([]any, len(p.figures))
	s, err := p.scenario(r)
	if err != nil {
		return figures, err
	}
	run, err := sim.New(s)
	if err != nil {
		return figures, err
	}
	for now, _ := run.Time(); !run.Advance(now + slice); now += slice {
		if ctx.Err() != nil {
			return figures, ctx.Err()
		}
	}
	run.Finish()
	if err := run.Problem(); err != nil {
		return figures, err
	}
	for i, f := range p.figures {
		if v, err := run.Value(f, 0, 0); err == nil {
			figures[i] = tidy.Figure(v)
		}
	}
	return figures, nil
}
