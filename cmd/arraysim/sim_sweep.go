package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/sweep"
	"github.com/arraysim/arraysim/internal/tidy"
)

// rowsFlags say what happens to the rows of a sweep by a plan.
type rowsFlags struct {
	dirs    []string
	shard   string
	merge   string
	partial bool
	retry   bool
}

func (f *rowsFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.dirs, "rows", nil, "with a plan: folder of the rows; runs that have a row are skipped")
	c.Flags().StringVar(&f.shard, "shard", "", "with a plan: run part I of N, counted from 0, such as 0/4")
	c.Flags().StringVar(&f.merge, "merge", "", "with a plan: run nothing; combine the rows of all --rows in this file, Parquet or .csv")
	c.Flags().BoolVar(&f.retry, "retry-failed", false, "with a plan: repeat runs whose row has an error")
	c.Flags().BoolVar(&f.partial, "partial", false, "with --merge: write the file even if runs are missing")
}

// plan returns the file of a plan that --sweep names, if it names one.
func (f *simFlags) plan(c *cobra.Command) (string, error) {
	plan := ""
	for _, s := range f.sweep {
		if !strings.Contains(s, "=") {
			plan = s
		}
	}
	switch {
	case plan == "" && changed(c, "rows", "shard", "merge", "partial", "retry-failed"):
		return "", errors.New("--rows, --shard, --merge, --partial and --retry-failed go with --sweep PLAN.yaml")
	case plan == "":
		return "", nil
	case len(f.sweep) > 1:
		return "", errors.New("a plan is the only --sweep; write other values into its grid")
	case changed(c, "seed", "until", "case", "set", "out", "expect", "replicates", "record", "io-log", "profile"):
		return "", errors.New("a plan takes --rows, --shard, --jobs, --merge, --partial, --retry-failed, --quiet and --json; write the rest into the plan")
	case len(f.rows.dirs) == 0:
		return "", errors.New("a sweep by a plan needs --rows, the folder of its rows")
	case f.rows.merge == "" && (len(f.rows.dirs) > 1 || f.rows.partial):
		return "", errors.New("several --rows, and --partial, go with --merge")
	case f.rows.merge != "" && (f.rows.shard != "" || f.rows.retry):
		return "", errors.New("--merge runs nothing and takes neither --shard nor --retry-failed")
	}
	return plan, nil
}

// parts reads 2/4.
func (f *rowsFlags) parts() (shard, shards int, err error) {
	if f.shard == "" {
		return 0, 1, nil
	}
	i, n, _ := strings.Cut(f.shard, "/")
	shard, err1 := strconv.Atoi(i)
	shards, err2 := strconv.Atoi(n)
	if err := errors.Join(err1, err2); err != nil || shards < 1 || shard < 0 || shard >= shards {
		return 0, 0, fmt.Errorf("--shard %s: write I/N, with I from 0 to N-1, such as 0/4", f.shard)
	}
	return shard, shards, nil
}

// programVersion is what the rows of a sweep say of the program: its version, and where no commit stands for
// the source, the hash of the program itself.
func programVersion() (string, error) {
	b := admin.ThisBuild()
	if !b.Modified && b.Commit != "unknown" {
		return b.Version + " " + b.Commit, nil
	}
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return b.Version + " sha256:" + hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func (a *app) sweep(cmd *cobra.Command, plan, scenario string, f *simFlags) error {
	w := sweep.Work{Jobs: f.jobs, Dir: f.rows.dirs[0], RetryFailed: f.rows.retry}
	var err error
	if w.Shard, w.Shards, err = f.rows.parts(); err != nil {
		return err
	}
	version, err := programVersion()
	if err != nil {
		return err
	}
	p, err := sweep.Load(plan, scenario, version)
	if err != nil {
		return err
	}
	if f.rows.merge != "" {
		return a.merge(cmd, p, &f.rows)
	}
	if !f.quiet && !a.json && terminal(os.Stderr) {
		bars := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		bar := bars.AddBar(int64(max(p.Total()/w.Shards, 1)), mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("runs "), decor.CountersNoUnit("%d of %d")),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_MMSS), decor.Name(" left")))
		w.Progress = func(done, all int) {
			bar.SetTotal(int64(all), false)
			bar.SetCurrent(int64(done))
		}
		defer func() {
			bar.Abort(true)
			bars.Wait()
		}()
	}
	ctx, _ := signals()
	d, err := p.Execute(ctx, w)
	if err != nil {
		return err
	}
	err = show(a, cmd, d, func(out io.Writer, d sweep.Done) {
		fmt.Fprintf(out, "%d runs of %d: %d rows existed, %d runs ended now; %d rows have an error; %s\n", d.Shard, d.Plan, d.Before, d.Ran, d.Failed, w.Dir)
	})
	if err == nil && d.Failed > 0 {
		err = exitError{fmt.Errorf("%d runs ended with an error; see the column error of their rows, and repeat them with --retry-failed", d.Failed), exitRuns}
	}
	return err
}

func (a *app) merge(cmd *cobra.Command, p *sweep.Plan, f *rowsFlags) error {
	t, m, err := p.Merge(f.dirs)
	if err != nil && !(f.partial && sweep.Missing(err)) {
		return err
	}
	if err := tidy.WriteFile(f.merge, t); err != nil {
		return fmt.Errorf("--merge: %w", err)
	}
	return show(a, cmd, m, func(out io.Writer, m sweep.Merged) {
		if m.Again > 0 {
			fmt.Fprintf(out, "%d rows are of runs that failed and were repeated\n", m.Again)
		}
		fmt.Fprintf(out, "%d rows of %d runs from %d files: %d duplicates with the same figures, %d of other plans, %d with an error; %s\n",
			m.Runs-m.Missing, m.Runs, m.Files, m.Equal, m.Other, m.Failed, f.merge)
		if len(m.Unknown) > 0 {
			fmt.Fprintf(out, "no run has a value of %s\n", strings.Join(m.Unknown, ", "))
		}
	})
}
