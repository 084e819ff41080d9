package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/replay"
	"github.com/arraysim/arraysim/internal/stats"
)

// liveFlags describe a replay against a target.
type liveFlags struct {
	target, speed string
	depth         int
	readOnly, yes bool
}

func (f *liveFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.target, "target", "", "replay against "+iscsi.Form+", a block device or a file")
	c.Flags().StringVar(&f.speed, "speed", "max", "1 for the trace's own timing, 2 for twice as fast, max for as fast as the target can")
	c.Flags().IntVar(&f.depth, "depth", 8, "requests in flight at most")
	c.Flags().BoolVar(&f.readOnly, "read-only", false, "leave writes out")
	c.Flags().BoolVar(&f.yes, "yes", false, "overwrite the target without asking")
}

func (f *liveFlags) given(c *cobra.Command) bool {
	return changed(c, "speed", "depth", "read-only", "yes")
}

func (f *liveFlags) config() (replay.RunConfig, error) {
	cfg := replay.RunConfig{
		Depth: f.depth, ReadOnly: f.readOnly,
		Open: func() (replay.Target, error) { return replay.OpenTarget(f.target, !f.readOnly) },
	}
	if f.depth < 1 || f.depth > 1024 {
		return cfg, fmt.Errorf("--depth: %d requests in flight are not possible; give 1 to 1024", f.depth)
	}
	if f.speed != "max" {
		var err error
		if cfg.Speed, err = strconv.ParseFloat(f.speed, 64); err != nil || !(cfg.Speed > 0 && cfg.Speed <= 1e6) {
			return cfg, fmt.Errorf(`--speed: %q is not a valid speed; give a number such as 1 or 0.5, or "max"`, f.speed)
		}
	}
	return cfg, nil
}

// mayWrite asks on the terminal whether the target may be overwritten.
func (f *liveFlags) mayWrite(in *os.File) error {
	if f.readOnly || f.yes {
		return nil
	}
	if !terminal(in) {
		return errors.New("the writes of the trace would overwrite the target; allow it with --yes, or leave them out with --read-only")
	}
	fmt.Fprintf(os.Stderr, "The writes of the trace will overwrite %s. Continue? [y/N] ", admin.Printable(iscsi.WithoutSecret(f.target)))
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was written; --read-only leaves writes out")
	}
	return nil
}

// liveResult is what a replay against a target prints.
type liveResult struct {
	*source
	Target        string     `json:"target"`
	TargetBytes   int64      `json:"target_bytes"`
	Seconds       float64    `json:"seconds"`
	Latencies     []kindJSON `json:"latencies"`
	SkippedWrites int64      `json:"skipped_writes"`
	Folded        int64      `json:"folded_requests"`
	Late          int64      `json:"late_requests"`
	Errors        int64      `json:"failed_requests"`
	FirstError    string     `json:"first_error,omitempty"`
	due           bool
	// In virtual time.
	Virtual bool `json:"virtual,omitempty"`
	caches  string
}

type kindJSON struct {
	Kind   string             `json:"kind"`
	Count  int64              `json:"count"`
	Bytes  int64              `json:"bytes"`
	MeanUS float64            `json:"mean_us"`
	US     map[string]float64 `json:"percentiles_us"`
	MaxUS  float64            `json:"max_us"`
}

var percentiles = []float64{50, 90, 99, 99.9}

func (a *app) live(cmd *cobra.Command, s *source, f *liveFlags, cfg replay.RunConfig) error {
	if cfg.Speed > 0 && !s.Times() {
		s.end()
		return fmt.Errorf("a trace of format %s has no times; replay it with --speed max", s.FormatName)
	}
	if err := f.mayWrite(os.Stdin); err != nil {
		s.end()
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out, err := replay.Run(ctx, s, cfg)
	s.end()
	if out == nil || out.Reads.Histogram == nil {
		return err
	}
	r := liveResult{
		source: s, Target: iscsi.WithoutSecret(f.target), TargetBytes: out.Size, Seconds: out.Elapsed.Seconds(), SkippedWrites: out.SkippedWrites,
		Folded: out.Folded, Late: out.Late, Errors: out.Errors, due: cfg.Speed > 0,
	}
	r.fill(out)
	if e := show(a, cmd, r, writeLive); err == nil {
		err = e
	}
	if err == nil && errors.Is(ctx.Err(), context.Canceled) {
		err = errors.New("the replay was interrupted")
	}
	if err == nil && out.Errors > 0 {
		err = fmt.Errorf("%d requests failed, the first: %s", out.Errors, r.FirstError)
	}
	return err
}

// fill takes over the latencies.
func (r *liveResult) fill(out *replay.Outcome) {
	if out.FirstError != nil {
		r.FirstError = out.FirstError.Error()
	}
	for _, k := range []struct {
		name string
		l    *replay.Latency
	}{{"read", &out.Reads}, {"write", &out.Writes}} {
		if k.l.Count == 0 {
			continue
		}
		j := kindJSON{Kind: k.name, Count: k.l.Count, Bytes: k.l.Bytes, MeanUS: k.l.Histogram.Mean() / 1e3, MaxUS: float64(k.l.Histogram.Max()) / 1e3, US: map[string]float64{}}
		for _, p := range percentiles {
			j.US[strconv.FormatFloat(p, 'f', -1, 64)] = float64(stats.Percentile(k.l.Histogram, p)) / 1e3
		}
		r.Latencies = append(r.Latencies, j)
	}
}

func writeLive(w io.Writer, r liveResult) {
	r.source.head(w)
	fmt.Fprintf(w, "%s, %s, in %.1f s\n\n%-6s %10s %12s %10s %10s", r.Target, admin.Size(r.TargetBytes).Human(), r.Seconds, "", "REQUESTS", "MB/S", "IO/S", "MEAN US")
	for _, p := range percentiles {
		fmt.Fprintf(w, " %9s%%", strconv.FormatFloat(p, 'f', -1, 64))
	}
	fmt.Fprintf(w, " %10s\n", "MAX")
	for _, l := range r.Latencies {
		mb, ios := "-", "-" // in virtual time nothing may take time
		if r.Seconds > 0 {
			mb, ios = fmt.Sprintf("%.1f", float64(l.Bytes)/1e6/r.Seconds), fmt.Sprintf("%.0f", float64(l.Count)/r.Seconds)
		}
		fmt.Fprintf(w, "%-6s %10d %12s %10s %10.0f", l.Kind, l.Count, mb, ios, l.MeanUS)
		for _, p := range percentiles {
			fmt.Fprintf(w, " %10.0f", l.US[strconv.FormatFloat(p, 'f', -1, 64)])
		}
		fmt.Fprintf(w, " %10.0f\n", l.MaxUS)
	}
	if r.Virtual && r.due {
		fmt.Fprintln(w, "latency counts from when a request was due")
	} else if r.due {
		fmt.Fprintf(w, "latency counts from when a request was due; %d began more than 10 ms late\n", r.Late)
	}
	if r.SkippedWrites > 0 {
		fmt.Fprintf(w, "%d writes were left out\n", r.SkippedWrites)
	}
	if r.Folded > 0 {
		fmt.Fprintf(w, "%d requests lay beyond the end of the target and were folded into it\n", r.Folded)
	}
	fmt.Fprint(w, r.caches)
}

// duration writes nanoseconds of a trace.
func duration(ns int64) string { return time.Duration(ns).Round(time.Millisecond).String() }
