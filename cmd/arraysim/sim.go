package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/experiment"
	"github.com/arraysim/arraysim/internal/sim"
)

// simFlags are the flags of `arraysim sim`.
type simFlags struct {
	seed          uint64
	until, out    string
	only          []string
	set, sweep    []string
	expect, quiet bool
	jobs          int
	replicates    int
	record        time.Duration
	ioLog         []string
	profile       string
	rows          rowsFlags
}

func (a *app) sim() *cobra.Command {
	var f simFlags
	c := &cobra.Command{
		Use:   "sim [SCENARIO.yaml]",
		Short: "Run a scenario in virtual time",
		Long: `sim runs the hosts, links and arrays of a scenario file in one deterministic event queue: the
firmware that serve runs, in virtual time. The same scenario and seed give the same bytes on
every machine.

A scenario with cases runs all of them, and --sweep KEY=A,B the grid of the values, on all cores.
Ctrl-C ends the runs and prints the results so far. In --out, a run that has not begun, or fails,
leaves the files of an earlier one as they are; any other replaces them, and removes counters that
it does not record.

--sweep PLAN.yaml runs a plan. It writes one row per run into Parquet files in the folder of
--rows, and resumes where it stopped. --shard runs a part of the plan, --merge combines the rows.
The exit status is 3 if all rows are written and some are of runs that failed. See
docs/laboratory-runs.md.

A file whose name ends in .fio is a fio job file. It runs against a volume of an array of
--profile.`,
		Example: "  arraysim sim testdata/scenarios/003-zeroing.yaml --expect\n" +
			"  arraysim sim testdata/scenarios/001-undercover.yaml --case incident --out out\n" +
			"  arraysim sim scenario.yaml --set jobs.clone.outstanding=4 --sweep hosts.esx1.vaai.MaxHWTransferSize=4MiB,16MiB\n" +
			"  arraysim sim reads.fio --profile svc\n" +
			"  arraysim sim --sweep plan.yaml --rows rows --shard 0/4\n" +
			"  arraysim sim --sweep plan.yaml --rows rows --merge all.parquet",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, err := f.plan(cmd)
			if err != nil {
				return err
			}
			if f.seed == 0 && cmd.Flags().Changed("seed") {
				return errors.New("--seed 0: give 1 or more")
			}
			scenario := strings.Join(args, "")
			if plan == "" && scenario == "" {
				return errors.New("sim needs the path of a scenario file, or --sweep with a plan")
			}
			if changed(cmd, "profile") && !strings.HasSuffix(scenario, ".fio") {
				return fmt.Errorf("--profile goes with a fio job file; a scenario takes --set profile=%s", f.profile)
			}
			if f.record < 0 {
				return fmt.Errorf("--record %v: give a time above 0, such as 1s", f.record)
			}
			a.running = true
			if plan != "" {
				return a.sweep(cmd, plan, scenario, &f)
			}
			return a.runSim(cmd, scenario, &f)
		},
	}
	c.Flags().Uint64Var(&f.seed, "seed", 0, "seed of the run (default: the scenario's)")
	c.Flags().StringVar(&f.until, "until", "", "simulated time at which the run ends, such as 10m")
	c.Flags().StringVarP(&f.out, "out", "o", "", "folder for counters, event log, report and time series")
	c.Flags().StringSliceVar(&f.only, "case", nil, "run these cases only")
	c.Flags().StringArrayVar(&f.set, "set", nil, "change a setting of the scenario, key=value; the key is a path such as arrays.svc.cache")
	c.Flags().StringArrayVar(&f.sweep, "sweep", nil, "run once for each value, key=a,b,c; several sweeps form a grid. Or a plan, a YAML file: one row per run, into --rows")
	f.rows.add(c)
	c.Flags().BoolVar(&f.expect, "expect", false, "compare with the scenario's expectations; fail if one does not hold")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar")
	c.Flags().DurationVar(&f.record, "record", 0, "write all counters at this interval of simulated time into --out: Parquet, iostats XML, esxtop CSV")
	c.Flags().StringVar(&f.profile, "profile", "all-flash", "with a fio job file: profile of the array")
	c.Flags().StringSliceVar(&f.ioLog, "io-log", nil, "log every I/O into --out: fio (an I/O log to replay, and a latency log), blkparse (text of blktrace)")
	c.Flags().IntVar(&f.replicates, "replicates", 0, "run with this many seeds, starting at the scenario's, and compare the 95 % interval of each mean with the expectations")
	c.Flags().IntVar(&f.jobs, "jobs", 0, "concurrent runs (default: the number of cores)")
	return a.jsonFlag(c)
}

func (a *app) runSim(cmd *cobra.Command, path string, f *simFlags) error {
	s, notes, err := experiment.Load(path, f.profile)
	for _, n := range notes {
		fmt.Fprintln(admin.PrintableWriter(os.Stderr), "arraysim: "+n)
	}
	if err != nil {
		return err
	}
	set, err := f.settings()
	if err != nil {
		return err
	}
	if s, err = experiment.Apply(s, set); err != nil {
		return err
	}
	choice, err := f.choice()
	if err != nil {
		return err
	}
	ctx, _ := signals()
	if f.replicates != 0 {
		return a.replicate(ctx, cmd.OutOrStdout(), s, choice, f)
	}
	grid, err := choice.Grid(s)
	if err != nil {
		return err
	}
	watch, unlock, err := f.watch(grid)
	if err != nil {
		return err
	}
	w, end := f.work(a, watch)
	runs, err := w.Run(ctx, grid)
	end()
	grid, runs = experiment.Begun(grid, runs)
	if err = errors.Join(err, unlock()); err != nil {
		if len(runs) > 0 { // what has ended is worth reading, all the more where it could not be written
			err = errors.Join(a.showSim(cmd.OutOrStdout(), s, grid, runs, nil), err)
		}
		return err
	}
	var outcomes []sim.Outcome
	if f.expect {
		if len(s.Expect) == 0 {
			return fmt.Errorf("%s has no expectations", path)
		}
		outcomes = experiment.Compare(choice.Expected(s), grid, runs)
	}
	if err := a.showSim(cmd.OutOrStdout(), s, grid, runs, outcomes); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: the results so far were printed")
	}
	return verdict(outcomes)
}

// verdict fails if an expectation does not hold; the table has said which.
func verdict(outcomes []sim.Outcome) error {
	for _, o := range outcomes {
		if !o.OK {
			return errSilent
		}
	}
	return nil
}

// replicate runs all cases with one seed after the other and prints what the expectations say of the means.
func (a *app) replicate(ctx context.Context, out io.Writer, s *sim.Scenario, choice *experiment.Choice, f *simFlags) error {
	switch {
	case f.replicates < 2:
		return fmt.Errorf("--replicates %d: an interval needs 2 runs or more", f.replicates)
	case len(s.Expect) == 0:
		return errors.New("--replicates prints expectations, and the scenario has none")
	case f.out != "" || f.record > 0 || len(f.ioLog) > 0 || len(f.sweep) > 0:
		return errors.New("--replicates keeps no runs: leave out --out, --record, --io-log and --sweep")
	}
	w, end := f.work(a, nil)
	outcomes, err := experiment.Replicate(ctx, s, choice, f.replicates, w)
	end()
	if err != nil {
		return err
	}
	if a.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]any{"scenario": s.Name, "replicates": f.replicates, "expectations": outcomes, "totals": sim.Count(outcomes)}); err != nil {
			return err
		}
		return verdict(outcomes)
	}
	fmt.Fprintf(out, "%s\n%d seeds from %d on: mean and 95 %% interval\n", s.Source, f.replicates, s.Seed)
	sim.WriteOutcomes(out, outcomes)
	return verdict(outcomes)
}

// settings are those of --set, --seed and --until.
func (f *simFlags) settings() ([]experiment.Setting, error) {
	set, err := settings("--set", f.set)
	if f.seed != 0 {
		set = append(set, experiment.Setting{Key: "seed", Value: strconv.FormatUint(f.seed, 10)})
	}
	if f.until != "" {
		set = append(set, experiment.Setting{Key: "until", Value: f.until})
	}
	return set, err
}

// settings reads what a flag gives as key=value.
func settings(flag string, list []string) (out []experiment.Setting, err error) {
	for _, kv := range list {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, fmt.Errorf("%s %s: write key=value", flag, kv)
		}
		out = append(out, experiment.Setting{Key: key, Value: value})
	}
	return out, nil
}

// choice is what --case and --sweep say.
func (f *simFlags) choice() (*experiment.Choice, error) {
	c := &experiment.Choice{Cases: f.only}
	for _, sw := range f.sweep {
		key, values, ok := strings.Cut(sw, "=")
		if !ok {
			return nil, fmt.Errorf("--sweep %s: write key=a,b,c", sw)
		}
		c.Axes = append(c.Axes, experiment.Axis{Key: key, Values: strings.Split(values, ",")})
	}
	return c, nil
}

// watch is what --out, --record and --io-log write of the runs, nil for nothing. Until end, other runs keep away from the folder.
func (f *simFlags) watch(grid []*sim.Scenario) (watch experiment.Attachment, end func() error, err error) {
	end = func() error { return nil }
	if f.out == "" {
		if f.record > 0 || len(f.ioLog) > 0 {
			return nil, nil, errors.New("--record and --io-log need --out, the folder for their files")
		}
		return nil, end, nil
	}
	out := &experiment.Outputs{Record: f.record, IOLogs: f.ioLog, Dir: func(s *sim.Scenario) string { return experiment.Folder(f.out, len(grid), s) }}
	if err := errors.Join(experiment.CheckFolders(f.out, grid), out.Check(grid)); err != nil {
		return nil, nil, err
	}
	if len(grid) > 1 { // one has the folder for itself
		if end, err = experiment.LockFolder(f.out); err != nil {
			return nil, nil, err
		}
	}
	return out.Attach, end, nil
}

// work is how the runs are carried out; end waits for their progress bars.
func (f *simFlags) work(a *app, watch experiment.Attachment) (w experiment.Work, end func()) {
	return metered(experiment.Work{Jobs: f.jobs, Attach: watch}, !f.quiet && !a.json && terminal(os.Stderr))
}

func (a *app) showSim(w io.Writer, s *sim.Scenario, grid []*sim.Scenario, runs []*sim.Run, outcomes []sim.Outcome) error {
	if a.json {
		results := []sim.Result{}
		for i, r := range runs {
			res := r.Result()
			res.Scenario = grid[i].Name
			results = append(results, res)
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"scenario": s.Name, "runs": results, "expectations": outcomes, "totals": sim.Count(outcomes)})
	}
	if len(runs) == 1 && len(outcomes) == 0 {
		_, err := io.WriteString(w, runs[0].Report())
		return err
	}
	if len(runs) > 1 {
		sim.WriteTable(w, s.Columns(runs[0]), grid, runs)
	}
	if len(outcomes) > 0 {
		fmt.Fprintf(w, "\n%s\n", s.Source)
		sim.WriteOutcomes(w, outcomes)
	}
	return nil
}
