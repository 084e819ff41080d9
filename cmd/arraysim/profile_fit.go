//go:build !noparquet

package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/fit"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/tidy"
)

// fitFlags are those of `arraysim profile fit`.
type fitFlags struct {
	start, holdOut, out string
	free                []string
	mdisks, depth       int
	sequential          bool
	seed                uint64
}

func (a *app) profileFit() *cobra.Command {
	var f fitFlags
	c := &cobra.Command{
		Use:   "fit SOURCE...",
		Short: "Fit the parameters of a profile to measurements",
		Long: `fit estimates the parameters of a profile from latencies measured under known loads. It reads
results of fio (--output-format=json) and its latency logs (NAME_lat.1.log, with --depth),
iostats XML of an array, batch files of esxtop, and counters of arraysim in Parquet. The model
is the simulator.

It prints a confidence interval for each parameter, lists parameters that the data cannot
separate, and predicts the latencies that were held out. Measure small and large I/Os, one at a
time and many in flight: a cost that all loads share cannot be attributed. Latencies of a whole
array count as those of one pool with --mdisks mdisks, and writes as absorbed by its cache.`,
		Example: "  fio --output-format=json --output=lun.json reads.fio\n" +
			"  arraysim profile fit lun.json\n" +
			"  arraysim profile fit lun.json --start vnx-raid5 --free cache.read,mdisks.default.base --out mine.yaml",
		Args: cobra.MinimumNArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error { return a.fit(cmd, args, &f) }),
	}
	c.Flags().StringVar(&f.start, "start", "all-flash", "initial profile; settings that are not fitted keep its values")
	c.Flags().StringSliceVar(&f.free, "free", nil, "settings to fit (default: "+strings.Join(fit.Usual, ",")+")")
	c.Flags().StringVar(&f.holdOut, "hold-out", "20%", "share of the loads to hold out and predict")
	c.Flags().StringVarP(&f.out, "out", "o", "", "write the fitted profile into this YAML file")
	c.Flags().IntVar(&f.mdisks, "mdisks", 1, "number of mdisks in the measured pool")
	c.Flags().IntVar(&f.depth, "depth", 0, "I/Os in flight while a latency log was recorded")
	c.Flags().BoolVar(&f.sequential, "sequential", false, "the load of latency logs and counters was sequential")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "seed of the simulations")
	return a.jsonFlag(c)
}

// fittedJSON is a parameter for scripts; nil is not known.
type fittedJSON struct {
	Key   string   `json:"setting"`
	Start float64  `json:"start"`
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
	// Written is what --out writes and the predictions are made with, determined or not.
	Written float64 `json:"written"`
}

// fitJSON is a fit for scripts: times in nanoseconds, bandwidths in bytes a second.
type fitJSON struct {
	Level      float64         `json:"level"`
	Parameters []fittedJSON    `json:"parameters"`
	Confused   [][]string      `json:"not_told_apart"`
	Scale      float64         `json:"residuals_over_noise"`
	Repeats    fitRepeats      `json:"measured_again"`
	Fitted     fitErrors       `json:"fitted"`
	HeldOut    fitErrors       `json:"held_out"`
	Latencies  []fitPrediction `json:"latencies"`
	fit        *fit.Fit
}

// fitRepeats is what loads that were measured more than once say of the measurement.
type fitRepeats struct {
	Loads     int      `json:"loads"`
	Deviation *float64 `json:"relative_deviation"`
}

type fitErrors struct {
	Count  int      `json:"count"`
	Median *float64 `json:"median_relative_error"`
	Worst  *float64 `json:"worst_relative_error"`
}

type fitPrediction struct {
	Name      string  `json:"name"`
	Load      string  `json:"load"`
	Writes    bool    `json:"writes"`
	MS        float64 `json:"measured_ms"`
	Predicted float64 `json:"predicted_ms"`
	HeldOut   bool    `json:"held_out"`
}

func (a *app) fit(cmd *cobra.Command, sources []string, f *fitFlags) error {
	opt := fit.Options{Model: &fit.Model{Profile: f.start, Mdisks: f.mdisks, Seed: f.seed}, Free: f.free}
	var err error
	if opt.HoldOut, err = share(f.holdOut); err != nil || opt.HoldOut > 0.5 {
		return errors.Join(err, fmt.Errorf("--hold-out %s: give 0 to 50%%", f.holdOut))
	}
	if f.mdisks < 1 || f.mdisks > 1024 {
		return fmt.Errorf("--mdisks %d: give 1 to 1024", f.mdisks)
	}
	if f.depth < 0 || f.depth > 1<<20 {
		return fmt.Errorf("--depth %d: give 1 to %d", f.depth, 1<<20)
	}
	if f.out != "" && !strings.HasSuffix(f.out, ".yaml") {
		return fmt.Errorf("--out %s: --profile loads files that end in .yaml; give such a name", f.out)
	}
	ctx, _ := signals()
	var obs []fit.Observation
	for _, s := range sources {
		more, err := fit.Read(ctx, s, fit.Load{Outstanding: f.depth, Sequential: f.sequential})
		if err != nil {
			return err
		}
		obs = append(obs, more...)
	}
	if !a.json && terminal(os.Stderr) {
		bars := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		var text atomic.Value // the fit writes it, the bar reads it
		text.Store("")
		bar := bars.AddSpinner(0, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("fit "), decor.Any(func(decor.Statistics) string { return text.Load().(string) })),
			mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)))
		opt.Progress = func(looks int, off float64) {
			text.Store(fmt.Sprintf("%d simulations of all loads, off by %.1f times the noise", looks, off))
			bar.Increment()
		}
		defer func() {
			bar.Abort(true)
			bars.Wait()
		}()
	}
	got, err := fit.Run(ctx, obs, opt)
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := writeFitted(f, got, sources); err != nil {
			return err
		}
	}
	return show(a, cmd, asFitJSON(got), func(w io.Writer, j fitJSON) { writeFit(w, j.fit) })
}

func asFitJSON(f *fit.Fit) fitJSON {
	j := fitJSON{Level: f.Level, Confused: f.Confused, Scale: f.Scale, fit: f}
	known := func(v float64) *float64 {
		if math.IsNaN(v) {
			return nil
		}
		return &v
	}
	for i := range f.Estimates {
		e := &f.Estimates[i]
		x := fittedJSON{Key: e.Key, Start: e.Start, Low: known(e.Low), High: known(e.High), Written: e.Value}
		if e.Known() {
			x.Value = &e.Value
		}
		j.Parameters = append(j.Parameters, x)
	}
	errorsOf := func(heldOut bool) (e fitErrors) {
		median, worst, n := f.Errors(heldOut)
		if e.Count = n; n > 0 {
			e.Median, e.Worst = &median, &worst
		}
		return e
	}
	j.Fitted, j.HeldOut = errorsOf(false), errorsOf(true)
	j.Repeats = fitRepeats{f.Repeated, known(f.Repeat)}
	for _, r := range f.Residuals {
		j.Latencies = append(j.Latencies, fitPrediction{r.Name, r.Load.String(), r.Writes, r.Mean * 1e3, r.Predicted * 1e3, r.HeldOut})
	}
	return j
}

func writeFit(w io.Writer, f *fit.Fit) {
	fmt.Fprintf(w, "%-28s %12s %12s %12s %12s\n", "SETTING", "START", "FITTED", "FROM", "TO")
	open := 0
	for i := range f.Estimates {
		e := &f.Estimates[i]
		low, high := "not", "determined"
		if e.Known() {
			low, high = e.Text(e.Low), e.Text(e.High)
		} else {
			open++
		}
		fmt.Fprintf(w, "%-28s %12s %12s %12s %12s\n", e.Key, e.Text(e.Start), e.Text(e.Value), low, high)
	}
	fmt.Fprintf(w, "All intervals hold together with %.0f %% confidence, given the model.\n", 100*f.Level)
	if open > 0 {
		fmt.Fprintln(w, "A value that is not determined is valid only with the other values. --out writes all of them, and the errors below refer to them.")
	}
	for _, c := range f.Confused {
		if len(c) == 1 {
			fmt.Fprintf(w, "The data does not determine %s: add loads that depend on it, measure them longer or again, or leave it out of --free.\n", c[0])
		} else {
			fmt.Fprintf(w, "The data cannot separate %s: add loads that they affect differently, or fix one of them in the profile of --start.\n", strings.Join(c, ", "))
		}
	}
	fmt.Fprintf(w, "\n%-8s %12s %12s %8s  %s\n", "", "MEASURED ms", "PREDICTED", "OFF", "LOAD")
	for i := range f.Residuals {
		r := &f.Residuals[i]
		what, of := "fitted", "reads"
		if r.HeldOut {
			what = "held out"
		}
		if r.Writes {
			of = "writes"
		}
		fmt.Fprintf(w, "%-8s %12.3f %12.3f %+6.1f %%  %s of: %s (%s)\n", what, r.Mean*1e3, r.Predicted*1e3, 100*r.Relative(), of, r.Load, r.Name)
	}
	for _, heldOut := range []bool{false, true} {
		if median, worst, n := f.Errors(heldOut); n > 0 {
			what := "fitted"
			if heldOut {
				what = "held out"
			}
			fmt.Fprintf(w, "%d %s: median error %.1f %%, worst %.1f %%\n", n, what, 100*median, 100*worst)
		}
	}
	if f.Repeated > 0 {
		fmt.Fprintf(w, "%d loads were measured repeatedly, and differ by %.1f %% (one standard deviation): no model predicts a measurement better than that.\n", f.Repeated, 100*f.Repeat)
	}
	if f.Scale > 3 {
		fmt.Fprintf(w, "The residuals are %.1f times the noise: the array does something that the model lacks. This widens the intervals.\n", f.Scale)
	}
}

// writeFitted writes the profile of --start with all values of the fit: the one that the predictions are made with.
func writeFitted(f *fitFlags, got *fit.Fit, sources []string) error {
	var fitted, open []string
	for i := range got.Estimates {
		e := &got.Estimates[i]
		fitted = append(fitted, e.Key)
		if !e.Known() {
			open = append(open, e.Key)
		}
	}
	p, err := profile.LoadWith(f.start, got.Settings())
	if err != nil {
		return err
	}
	p.Name = strings.TrimSuffix(f.out, ".yaml")
	p.Source = "arraysim profile fit " + strings.Join(sources, " ") + ", from " + f.start
	p.Assumed = "all but " + strings.Join(fitted, ", ")
	if len(open) > 0 {
		p.Assumed += "; the data does not determine " + strings.Join(open, ", ") + ", whose values fit only with the others"
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	if err := tidy.ReplaceBytes(f.out, text); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
