package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/fio"
	"github.com/arraysim/arraysim/internal/sim"
)

// comparison is fio's result of a job beside the simulated one, reads or writes.
type comparison struct {
	Job       string     `json:"job"`
	Direction string     `json:"direction"`
	Fio       int64      `json:"fio_ios"`
	Simulated int        `json:"simulated_ios"`
	Figures   []residual `json:"figures"`
}

// residual is one figure: the simulated one over fio's, less 1.
type residual struct {
	Figure    string  `json:"figure"`
	Fio       float64 `json:"fio"`
	Simulated float64 `json:"simulated"`
	Residual  float64 `json:"residual"`
}

func (a *app) compare() *cobra.Command {
	var array fio.Array
	c := &cobra.Command{
		Use:   "compare RESULT.json",
		Short: "Put fio's result on a LUN beside the simulated one",
		Long: `compare reads a result of fio (--output-format=json), runs its jobs in the simulator against
an array of --profile, and prints I/Os a second, mean latency and each percentile of both,
with the residual. The loads are those of the options in the result; jobs of a group run at
the same time, groups one after the other. Of jobs at the same time only that counts in which
none of them has had its --ios. fio's percentiles are those of its result, usually
from when the kernel has the I/O (clat).`,
		Example: "  fio --output-format=json --output=lun.json reads.fio\n  arraysim compare lun.json --profile mine.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			r, err := fio.ReadResult(args[0])
			if err != nil {
				return err
			}
			out, notes, err := a.compareWith(r, array)
			if err != nil {
				return err
			}
			for _, n := range notes {
				fmt.Fprintln(admin.PrintableWriter(os.Stderr), "arraysim: "+n)
			}
			return show(a, cmd, out, writeComparisons)
		}),
	}
	c.Flags().StringVar(&array.Profile, "profile", "all-flash", "profile of the array")
	c.Flags().IntVar(&array.Mdisks, "mdisks", 1, "mdisks of the pool")
	c.Flags().Int64Var(&array.IOs, "ios", 20000, "I/Os of a job that are simulated at most")
	return a.jsonFlag(c)
}

func (a *app) compareWith(r *fio.Result, array fio.Array) (out []comparison, notes []string, err error) {
	if array.IOs < 100 {
		return nil, nil, fmt.Errorf("--ios %d: give 100 or more", array.IOs)
	}
	ran, err := r.Ran()
	if err != nil {
		return nil, nil, err
	}
	var jobs []fio.Job
	for _, j := range ran {
		jobs = append(jobs, j.Job)
	}
	text, notes, err := fio.Scenario(jobs, array)
	if err != nil {
		return nil, nil, err
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	run, err := sim.New(s)
	if err != nil {
		return nil, nil, err
	}
	simulated := map[string]*answers{}
	for i := range ran {
		l, err := fio.LoadOf(ran[i].Options)
		if err != nil {
			return nil, nil, err
		}
		simulated[ran[i].Name] = &answers{bound: uint64(array.IOs) * l.IO}
	}
	run.Watch(func(x sim.IO) { simulated[x.Host].add(&x) })
	if err := advance(run, !a.json); err != nil {
		return nil, nil, err
	}
	for i := range ran {
		j := &ran[i]
		ours := simulated[j.Name]
		end := ours.last
		for _, name := range j.Beside {
			// Behind the end that --ios sets, another load than fio's goes on.
			if other := simulated[name]; other.bytes >= other.bound {
				end = min(end, other.last)
			}
		}
		for _, d := range []struct {
			name  string
			write bool
			d     *fio.Direction
		}{{"read", false, &j.Read}, {"write", true, &j.Write}} {
			ns := ours.until(end, d.write)
			if d.d.Count == 0 {
				continue
			}
			if len(ns) == 0 {
				notes = append(notes, fmt.Sprintf("job %s had no %s before another one had all of its --ios; give more", j.Name, d.name))
				continue
			}
			out = append(out, compareDirection(j.Name, d.name, d.d, ns, end-ours.first))
		}
	}
	return out, notes, nil
}

// answers are the simulated I/Os of a job, in the order of their ends.
type answers struct {
	all         []answer
	bytes       uint64
	bound       uint64 // bytes that --ios lets it have
	first, last int64
}

type answer struct {
	done, took int64
	write      bool
}

func (a *answers) add(x *sim.IO) {
	if len(a.all) == 0 {
		a.first = x.Issued
	}
	a.all = append(a.all, answer{x.Done, x.Done - x.Issued, x.Write})
	a.bytes += x.Bytes
	a.first, a.last = min(a.first, x.Issued), x.Done
}

// until returns the latencies of the reads or of the writes that ended by a time.
func (a *answers) until(end int64, write bool) (ns []float64) {
	for _, x := range a.all {
		if x.write == write && x.done <= end {
			ns = append(ns, float64(x.took))
		}
	}
	return ns
}

// advance runs to the end, and shows on a terminal how far it is.
func advance(run *sim.Run, show bool) error {
	ctx, _ := signals()
	var bar *mpb.Bar
	if show && terminal(os.Stderr) {
		bars := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		bar = bars.AddBar(1000, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("simulate "), decor.Percentage()), mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_MMSS)))
		defer func() {
			bar.Abort(true)
			bars.Wait()
		}()
	}
	for now := int64(0); !run.Advance(now); now += int64(100 * time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted at %s of simulated time", time.Duration(now))
		}
		if bar != nil {
			bar.SetCurrent(int64(run.Progress()))
		}
	}
	run.Finish()
	return run.Problem()
}

func compareDirection(job, direction string, d *fio.Direction, ns []float64, span int64) comparison {
	slices.Sort(ns)
	c := comparison{Job: job, Direction: direction, Fio: d.Count, Simulated: len(ns)}
	add := func(name string, theirs, ours float64) {
		if theirs > 0 {
			c.Figures = append(c.Figures, residual{name, theirs, ours, ours/theirs - 1})
		}
	}
	add("iops", d.IOPS, float64(len(ns))/(float64(max(span, 1))/1e9))
	add("mean us", d.Latency.Mean/1e3, fio.Describe(ns).Mean/1e3)
	spread := &d.Completion
	if len(spread.Percentiles) == 0 {
		spread = &d.Latency
	}
	percent, theirs := spread.Quantiles()
	for i, p := range percent {
		// The rank that fio takes: the smallest latency that so many percent do not exceed. Percentiles beyond
		// what was simulated are not known.
		if k := int(p/100*float64(len(ns)) + 0.9999999); k >= 1 && (p < 100-100/float64(len(ns))) {
			add("p"+strconv.FormatFloat(p, 'f', -1, 64)+" us", theirs[i]/1e3, ns[k-1]/1e3)
		}
	}
	return c
}

func writeComparisons(w io.Writer, all []comparison) {
	for _, c := range all {
		fmt.Fprintf(w, "%s, %ss: %d by fio, %d simulated\n%-12s %12s %12s %10s\n", c.Job, c.Direction, c.Fio, c.Simulated, "", "FIO", "SIMULATED", "RESIDUAL")
		for _, f := range c.Figures {
			fmt.Fprintf(w, "%-12s %12.1f %12.1f %+9.1f %%\n", f.Figure, f.Fio, f.Simulated, 100*f.Residual)
		}
		fmt.Fprintln(w)
	}
}
