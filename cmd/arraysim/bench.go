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

	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/sim"
)

func (a *app) bench() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure what zeroing costs, or moving a cached machine",
		Example: "  arraysim bench zero --disk eager --size 1T --profile purity-5.0"}
	c.AddCommand(a.benchZero(), a.benchMigrate())
	return c
}

// zeroFlags are the flags of `arraysim bench zero`.
type zeroFlags struct {
	disk, vaai, size, profile string
	target, chart             string
	yes                       bool
	outstanding               int
}

func (a *app) benchZero() *cobra.Command {
	var f zeroFlags
	c := &cobra.Command{
		Use:   "zero",
		Short: "Create an eager zeroed disk, or write a lazy zeroed or thin one for the first time",
		Long: `zero measures zeroing as a hypervisor does it. An eager disk is zeroed from end to
end, by WRITE SAME of 1 MiB or, with --vaai off, by writes of 64 KiB. On a lazy or thin
disk a guest writes 32 KiB in sequence, 32 at a time, and each new block of 1 MiB is zeroed
first while the guest waits.

Without --target it runs in virtual time against an array of the profile. With a
target it runs by the wall clock, against any array, and destroys what is on the LUN.`,
		Example: "  arraysim bench zero --disk eager --vaai on --size 1T --profile purity-5.1\n" +
			"  arraysim bench zero --disk thin --size 20G --profile purity-5.0 --chart latency.svg\n" +
			"  arraysim bench zero --disk eager --size 10G --target iscsi://127.0.0.1:3260/iqn.2026-01.io.arraysim:array/0 --yes\n" +
			"  arraysim bench zero --disk lazy --size 10G --target /dev/sdX",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error { return a.runZero(cmd, &f) }),
	}
	c.Flags().StringVar(&f.disk, "disk", "eager", "eager, lazy or thin")
	c.Flags().StringVar(&f.vaai, "vaai", "on", "on zeroes by WRITE SAME, off by writes")
	c.Flags().StringVar(&f.size, "size", "20G", "size of the disk")
	c.Flags().StringVar(&f.profile, "profile", "purity-5.1", "timing profile of the array in virtual time")
	c.Flags().StringVar(&f.target, "target", "", "real LUN: iscsi://HOST:PORT/TARGET/LUN or a block device")
	c.Flags().StringVar(&f.chart, "chart", "", "file for the picture of latency over time, .svg")
	c.Flags().BoolVar(&f.yes, "yes", false, "do not ask before the LUN is overwritten")
	c.Flags().IntVar(&f.outstanding, "outstanding", 32, "commands under way")
	return a.jsonFlag(c)
}

// zeroResult is what the benchmark measured.
type zeroResult struct {
	Disk      string      `json:"disk"`
	VAAI      string      `json:"vaai"`
	Bytes     uint64      `json:"bytes"`
	Where     string      `json:"where"`
	Seconds   float64     `json:"seconds"`
	GBps      float64     `json:"gb_per_second"`
	WireMBps  float64     `json:"wire_mb_per_second"`
	MeanMS    float64     `json:"latency_mean_ms"`
	P99MS     float64     `json:"latency_p99_ms"`
	AfterMS   float64     `json:"latency_once_allocated_ms,omitempty"`
	FallBacks uint64      `json:"fallbacks"`
	Series    []zeroPoint `json:"series"`
}

type zeroPoint struct {
	Seconds   float64 `json:"seconds"`
	LatencyMS float64 `json:"latency_ms"`
	MBps      float64 `json:"mb_per_second"`
}

func (a *app) runZero(cmd *cobra.Command, f *zeroFlags) error {
	size, err := profile.ParseSize(f.size)
	switch {
	case err != nil:
		return err
	case f.disk != "eager" && f.disk != "lazy" && f.disk != "thin":
		return fmt.Errorf("--disk is %q; it is eager, lazy or thin", f.disk)
	case f.vaai != "on" && f.vaai != "off":
		return fmt.Errorf("--vaai is %q; it is on or off", f.vaai)
	case size == 0 || size%(1<<20) != 0:
		return fmt.Errorf("--size is %s; a disk is whole MiB", size)
	case f.outstanding < 1 || f.outstanding > 256:
		return errors.New("--outstanding goes from 1 to 256")
	case f.chart != "" && !strings.HasSuffix(f.chart, ".svg"):
		return fmt.Errorf("--chart %s: pictures are SVG, give a name that ends in .svg; browsers and rsvg-convert make other formats of it", f.chart)
	}
	ctx, _ := signals()
	bar := !a.json && terminal(os.Stderr)
	var res *zeroResult
	if f.target == "" {
		res, err = zeroVirtual(ctx, f, uint64(size), bar)
	} else {
		res, err = zeroLive(ctx, cmd, f, uint64(size), bar)
	}
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

// zeroVirtual runs the benchmark as a scenario.
func zeroVirtual(ctx context.Context, f *zeroFlags, size uint64, bar bool) (*zeroResult, error) {
	job := fmt.Sprintf("{name: zero, kind: zero, volume: lun, size: %d, outstanding: %d}", size, f.outstanding)
	if f.disk != "eager" {
		job = fmt.Sprintf("{name: zero, volume: lun, disk: %s, size: %d, pattern: sequential, io: 32KiB, write: 1, outstanding: %d, laps: 2}", f.disk, size, f.outstanding)
	}
	s, err := sim.Parse(fmt.Appendf(nil, `
name: %s
profile: %s
sample: 10s
arrays: [{name: array, pools: [{name: pool, mdisks: [{size: 2TiB, count: %d}]}], volumes: [{name: lun, pool: pool, size: %d}]}]
hosts: [{name: esx, vaai: {HardwareAcceleratedInit: %v}}]
jobs: [%s]
`, f.disk, f.profile, 1+size>>40, size+1<<20, f.vaai == "on", job))
	if err != nil {
		return nil, err
	}
	runs, err := runAll(ctx, []*sim.Scenario{s}, 1, bar, nil)
	if err != nil {
		return nil, err
	}
	r := runs[0]
	v := func(name string) float64 { x, _ := r.Value(name, 0, 0); return x }
	res := &zeroResult{Disk: f.disk, VAAI: f.vaai, Bytes: size, Where: "profile " + f.profile + ", virtual time",
		Seconds: v("job.zero.seconds"), GBps: v("job.zero.gb_s"), WireMBps: v("job.zero.wire_mb_s"), MeanMS: v("job.zero.latency_ms"),
		P99MS: v("job.zero.p99_ms"), FallBacks: uint64(v("host.esx.ZERO_F"))}
	if f.disk != "eager" {
		res.Seconds, res.MeanMS, res.AfterMS = v("job.zero.first.seconds"), v("job.zero.first.latency_ms"), v("job.zero.after.latency_ms")
		res.GBps = float64(size) / res.Seconds / 1e9
	}
	for i, x := range r.Steps("zero") {
		res.add(float64(i+1)/10, 0.1, x.IOs, x.Bytes, x.Wait)
	}
	return res, nil
}

// add appends a point of the series.
func (r *zeroResult) add(at, length float64, ios, bytes uint64, wait int64) {
	p := zeroPoint{Seconds: at, MBps: float64(bytes) / length / (1 << 20)}
	if ios > 0 {
		p.LatencyMS = float64(wait) / float64(ios) / 1e6
	} else if n := len(r.Series); n > 0 {
		p.LatencyMS = r.Series[n-1].LatencyMS
	}
	r.Series = append(r.Series, p)
}

func writeZero(w io.Writer, r *zeroResult) {
	fmt.Fprintf(w, "%s disk of %s, VAAI %s, %s\n\n", r.Disk, profile.Size(r.Bytes), r.VAAI, r.Where)
	row := func(what, value string) { fmt.Fprintf(w, "  %-34s %s\n", what, value) }
	row("time", fmt.Sprintf("%s (%.1f s)", time.Duration(r.Seconds*1e9).Round(time.Second), r.Seconds))
	row("zeroed or written", fmt.Sprintf("%.2f GB/s", r.GBps))
	row("on the wire", fmt.Sprintf("%.1f MB/s", r.WireMBps))
	what := "WRITE SAME latency, mean"
	switch {
	case r.Disk != "eager":
		what = "guest latency, first writes, mean"
	case r.VAAI == "off":
		what = "latency of 64 MiB of zeros, mean"
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
func drawChart(path string, r *zeroResult) error {
	if len(r.Series) < 2 {
		return fmt.Errorf("%s: the run was too short for a picture", path)
	}
	var at, latency []float64
	for _, p := range r.Series {
		at, latency = append(at, p.Seconds), append(latency, p.LatencyMS)
	}
	title := fmt.Sprintf("%s disk of %s, VAAI %s, %s", r.Disk, profile.Size(r.Bytes), r.VAAI, r.Where)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := errors.Join(report.LatencyPicture(title, at, latency).WriteSVG(f), f.Close()); err != nil {
		return fmt.Errorf("chart %s: %w", path, err)
	}
	return nil
}

// confirm wants the word yes before a LUN is overwritten.
func confirm(cmd *cobra.Command, what string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s\nType yes to go on: ", what)
	var answer string
	if _, err := fmt.Fscanln(cmd.InOrStdin(), &answer); err != nil || answer != "yes" {
		return errors.New("nothing was written; answer yes, or give --yes")
	}
	return nil
}
