package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/experiment"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
	"github.com/arraysim/arraysim/internal/tidy"
	"github.com/arraysim/arraysim/internal/zerobench"
)

func (a *app) bench() *cobra.Command {
	c := group("bench", "Measure zeroing, and the migration of virtual machines with caches", "  arraysim bench zero --disk eager --size 1T --profile purity-5.0")
	c.AddCommand(a.benchZero(), a.benchMigrate())
	return c
}

// zeroFlags are the flags of `arraysim bench zero`.
type zeroFlags struct {
	zerobench.Config
	vaai, chart string
	yes         bool
}

func (a *app) benchZero() *cobra.Command {
	f := zeroFlags{Config: zerobench.Config{Size: 20 << 30}}
	c := &cobra.Command{
		Use:   "zero",
		Short: "Create an eager zeroed disk, or write a lazy zeroed or thin one for the first time",
		Long: `zero measures zeroing as a hypervisor does it. An eager disk is zeroed from end to
end, by WRITE SAME of 1 MiB or, with --vaai off, by writes of 64 KiB. On a lazy or thin
disk a guest writes 32 KiB in sequence, 32 at a time, and each new block of 1 MiB is zeroed
first while the guest waits.

Without --target it runs in virtual time against an array of the profile. With a
target it runs in real time, against any array, and destroys the data on the LUN.

` + secretHelp,
		Example: "  arraysim bench zero --disk eager --vaai on --size 1T --profile purity-5.1\n" +
			"  arraysim bench zero --disk thin --size 20G --profile purity-5.0 --chart latency.svg\n" +
			"  arraysim bench zero --disk eager --size 10G --target iscsi://127.0.0.1:3260/iqn.2026-01.io.arraysim:array/0 --yes\n" +
			"  arraysim bench zero --disk eager --size 10G --target 'iscsi://bob@array/iqn.2026-01.io.arraysim:array/0?secret_file=bob.secret' --yes\n" +
			"  arraysim bench zero --disk lazy --size 10G --target /dev/sdX",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error { return a.runZero(cmd, &f) }),
	}
	c.Flags().StringVar(&f.Disk, "disk", "eager", "eager, lazy or thin")
	c.Flags().StringVar(&f.vaai, "vaai", "on", "on zeroes by WRITE SAME, off by writes")
	c.Flags().Var((*size.Bytes)(&f.Size), "size", "size of the disk")
	c.Flags().StringVar(&f.Profile, "profile", "purity-5.1", "timing profile of the array in virtual time")
	c.Flags().StringVar(&f.Target, "target", "", "real LUN: "+iscsi.Form+" or a block device")
	c.Flags().StringVar(&f.chart, "chart", "", "file for the chart of latency over time, .svg")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask before overwriting the LUN")
	c.Flags().IntVar(&f.Outstanding, "outstanding", 32, "commands in flight")
	return a.jsonFlag(c)
}

func (a *app) runZero(cmd *cobra.Command, f *zeroFlags) error {
	if f.vaai != "on" && f.vaai != "off" {
		return fmt.Errorf("--vaai is %q; it is on or off", f.vaai)
	}
	f.VAAI = f.vaai == "on"
	if err := f.Validate(); err != nil {
		return err
	}
	if f.chart != "" && !strings.HasSuffix(f.chart, ".svg") {
		return fmt.Errorf("--chart %s: charts are SVG; give a name that ends in .svg, and convert the file with rsvg-convert", f.chart)
	}
	ctx, _ := signals()
	run := f.runLive
	if f.Target == "" {
		run = f.runVirtual
	}
	res, err := run(ctx, cmd, !a.json && terminal(os.Stderr))
	if err != nil {
		return err
	}
	if f.chart != "" {
		if err := drawChart(f.chart, res); err != nil {
			return err
		}
	}
	return show(a, cmd, res, writeZero)
}

// runVirtual runs the benchmark as a scenario.
func (f *zeroFlags) runVirtual(ctx context.Context, _ *cobra.Command, bar bool) (*zerobench.Result, error) {
	s, err := f.Scenario()
	if err != nil {
		return nil, err
	}
	w, end := metered(experiment.Work{Jobs: 1}, bar)
	runs, err := w.Run(ctx, []*sim.Scenario{s})
	end()
	if err != nil {
		return nil, err
	}
	res, err := f.OfRun(runs[0])
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return res, err
}

// runLive runs it on the target, when somebody has said that it may be overwritten.
func (f *zeroFlags) runLive(ctx context.Context, cmd *cobra.Command, show bool) (*zerobench.Result, error) {
	warnOfSecret("--target", f.Target)
	b, err := zerobench.Open(f.Config)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if !f.yes {
		if err := confirm(cmd, fmt.Sprintf("This overwrites the first %d MiB of %s; its present contents are lost.", f.Size>>20, iscsi.WithoutSecret(f.Target))); err != nil {
			return nil, err
		}
	}
	if !show {
		return b.Run(ctx, nil)
	}
	bars := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
	bar := bars.AddBar(int64(f.Size), mpb.PrependDecorators(decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), " % .1f"), decor.AverageETA(decor.ET_STYLE_MMSS)))
	defer func() {
		bar.Abort(false)
		bars.Wait()
	}()
	return b.Run(ctx, func(done uint64) { bar.SetCurrent(int64(done)) })
}

func writeZero(w io.Writer, r *zerobench.Result) {
	fmt.Fprintf(w, "%s disk of %s, VAAI %s, %s\n\n", r.Disk, size.Bytes(r.Bytes), r.VAAI, r.Where)
	row := func(what, value string) { fmt.Fprintf(w, "  %-34s %s\n", what, value) }
	row("time", fmt.Sprintf("%s (%.1f s)", time.Duration(r.Seconds*1e9).Round(time.Second), r.Seconds))
	row("zeroed or written", fmt.Sprintf("%.2f GB/s", r.GBps))
	row("on the wire", fmt.Sprintf("%.1f MB/s", r.WireMBps))
	what := "WRITE SAME latency, mean"
	switch {
	case r.Disk != "eager":
		what = "guest latency, first writes, mean"
	case r.VAAI == "off":
		what = "latency of 64 KiB of zeros, mean"
	}
	row(what, fmt.Sprintf("%.3f ms", r.MeanMS))
	row("99th percentile", fmt.Sprintf("%.3f ms", r.P99MS))
	if r.AfterMS > 0 {
		row("guest latency once allocated, mean", fmt.Sprintf("%.3f ms", r.AfterMS))
	}
	if r.FallBacks > 0 {
		row("offloads that failed", fmt.Sprint(r.FallBacks))
	}
	if len(r.Series) < 2 {
		return
	}
	var lat []float64
	for _, p := range r.Series {
		lat = append(lat, p.LatencyMS)
	}
	fmt.Fprintf(w, "\n%s\n", plot(lat, fmt.Sprintf("latency in ms over %.1f s", r.Series[len(r.Series)-1].Seconds)))
}

// drawChart writes latency over time to a file.
func drawChart(path string, r *zerobench.Result) error {
	if len(r.Series) < 2 {
		return fmt.Errorf("%s: the run was too short for a picture", path)
	}
	var at, latency []float64
	for _, p := range r.Series {
		at, latency = append(at, p.Seconds), append(latency, p.LatencyMS)
	}
	title := fmt.Sprintf("%s disk of %s, VAAI %s, %s", r.Disk, size.Bytes(r.Bytes), r.VAAI, r.Where)
	if err := tidy.Replace(path, report.LatencyPicture(title, at, latency).WriteSVG); err != nil {
		return fmt.Errorf("chart %s: %w", path, err)
	}
	return nil
}

// confirm wants the word yes before a LUN is overwritten.
func confirm(cmd *cobra.Command, what string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s\nType yes to continue: ", what)
	var answer string
	if _, err := fmt.Fscanln(cmd.InOrStdin(), &answer); err != nil || answer != "yes" {
		return errors.New("nothing was written; answer yes, or give --yes")
	}
	return nil
}
