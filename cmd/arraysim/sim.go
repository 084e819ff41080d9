package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/fio"
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
		Long: `sim runs hosts, links and arrays of a scenario file in one deterministic event
queue: the firmware that serve runs, in virtual time. The same scenario and seed give the
same bytes on every machine.

A scenario with cases runs all of them, and a sweep runs the grid of its values, on all
cores. Ctrl-C ends the runs where they are and prints the results so far.

A sweep by a plan (--sweep PLAN.yaml) writes a row for each run into the Parquet files of
--rows, and takes up again where it ended; --shard divides it, --merge puts the rows together.
See docs/laboratory-runs.md.

A file whose name ends in .fio is a job file of fio: it runs against a volume of an array of
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
			scenario := strings.Join(args, "")
			if plan == "" && scenario == "" {
				return errors.New("sim needs the path of a scenario file, or of a plan by --sweep")
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
	c.Flags().StringArrayVar(&f.sweep, "sweep", nil, "run once for each value, key=a,b,c; several sweeps make a grid. Or a plan in a YAML file: one row a run, into --rows")
	f.rows.add(c)
	c.Flags().BoolVar(&f.expect, "expect", false, "compare with the scenario's expectations; fail if one does not hold")
	c.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "no progress bar")
	c.Flags().DurationVar(&f.record, "record", 0, "write all counters at this interval of simulated time into --out: Parquet, iostats XML, esxtop CSV")
	c.Flags().StringVar(&f.profile, "profile", "all-flash", "with a job file of fio: profile of the array that it runs against")
	c.Flags().StringSliceVar(&f.ioLog, "io-log", nil, "write every I/O into --out: fio (an I/O log to replay, and a latency log), blkparse (text of blktrace)")
	c.Flags().IntVar(&f.replicates, "replicates", 0, "run with so many seeds, from the scenario's on, and hold the 95 % interval of each mean to the expectations")
	c.Flags().IntVar(&f.jobs, "jobs", 0, "runs at the same time (default: the number of cores)")
	return a.jsonFlag(c)
}

func (a *app) runSim(cmd *cobra.Command, path string, f *simFlags) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("scenario: %w; give the path of a YAML file", err)
	}
	if strings.HasSuffix(path, ".fio") {
		if text, err = f.fromFio(text); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	s, err := sim.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	loadModules(s, filepath.Dir(path))
	if s, err = f.settings(s); err != nil {
		return err
	}
	ctx, _ := signals()
	if f.replicates != 0 {
		return a.replicate(ctx, cmd.OutOrStdout(), s, f)
	}
	grid, err := f.grid(s)
	if err != nil {
		return err
	}
	var watch []attachment
	if (f.record > 0 || len(f.ioLog) > 0) && f.out == "" {
		return errors.New("--record and --io-log need --out, the folder that they write into")
	}
	dir := func(s *sim.Scenario) string { return outputFolder(f.out, len(grid), s) }
	if f.record > 0 {
		rec := &recording{interval: f.record, dir: dir}
		watch = append(watch, rec.attach)
	}
	if len(f.ioLog) > 0 {
		log, err := newIOLog(f.ioLog, dir)
		if err != nil {
			return err
		}
		watch = append(watch, log.attach)
	}
	runs, err := runAll(ctx, grid, f.jobs, !f.quiet && !a.json && terminal(os.Stderr), together(watch))
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := writeOutputs(f.out, grid, runs); err != nil {
			return err
		}
	}
	var outcomes []sim.Outcome
	if f.expect {
		if len(s.Expect) == 0 {
			return fmt.Errorf("%s has no expectations", path)
		}
		byCase := map[string]*sim.Run{}
		for i, r := range runs {
			byCase[grid[i].Name] = r
		}
		outcomes = sim.Compare(f.expected(s), byCase)
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
func (a *app) replicate(ctx context.Context, w io.Writer, s *sim.Scenario, f *simFlags) error {
	switch {
	case f.replicates < 2:
		return fmt.Errorf("--replicates %d: an interval needs 2 runs or more", f.replicates)
	case len(s.Expect) == 0:
		return errors.New("--replicates prints expectations, and the scenario has none")
	case f.out != "" || f.record > 0 || len(f.ioLog) > 0 || len(f.sweep) > 0:
		return errors.New("--replicates keeps no run: leave out --out, --record, --io-log and --sweep")
	}
	all := sim.NewReplicates(f.expected(s))
	for i := range f.replicates {
		seed := s.Seed + uint64(i)
		c, err := s.Set("seed", seed)
		if err != nil {
			return err
		}
		grid, err := f.grid(c)
		if err != nil {
			return err
		}
		runs, err := runAll(ctx, grid, f.jobs, !f.quiet && !a.json && terminal(os.Stderr), nil)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted in the run with seed %d of %d to %d", seed, s.Seed, s.Seed+uint64(f.replicates)-1)
		}
		byCase := map[string]*sim.Run{}
		for i, r := range runs {
			byCase[grid[i].Name] = r
		}
		all.Add(seed, byCase)
	}
	outcomes := all.Outcomes()
	if a.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]any{"scenario": s.Name, "replicates": f.replicates, "expectations": outcomes, "totals": sim.Count(outcomes)}); err != nil {
			return err
		}
		return verdict(outcomes)
	}
	fmt.Fprintf(w, "%s\n%d seeds from %d on: mean and 95 %% interval\n", s.Source, f.replicates, s.Seed)
	sim.WriteOutcomes(w, outcomes)
	return verdict(outcomes)
}

// fromFio makes a scenario of a job file of fio, and says what it leaves out.
func (f *simFlags) fromFio(text []byte) ([]byte, error) {
	jobs, err := fio.ParseJobs(string(text))
	if err != nil {
		return nil, err
	}
	out, notes, err := fio.Scenario(jobs, fio.Array{Profile: f.profile, Mdisks: 1})
	for _, n := range notes {
		fmt.Fprintln(admin.PrintableWriter(os.Stderr), "arraysim: "+n)
	}
	return out, err
}

// settings applies --set, --seed and --until.
func (f *simFlags) settings(s *sim.Scenario) (*sim.Scenario, error) {
	set := f.set
	if f.seed != 0 {
		set = append(set, fmt.Sprintf("seed=%d", f.seed))
	}
	if f.until != "" {
		set = append(set, "until="+f.until)
	}
	for _, kv := range set {
		key, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, fmt.Errorf("--set %s: write key=value", kv)
		}
		v, err := sim.ParseValue(value)
		if err != nil {
			return nil, err
		}
		if s, err = s.Set(key, v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// grid returns the scenario's cases times the values of the sweeps.
func (f *simFlags) grid(s *sim.Scenario) ([]*sim.Scenario, error) {
	runs, err := s.Runs()
	if err != nil {
		return nil, err
	}
	if len(f.only) > 0 {
		var kept []*sim.Scenario
		for _, name := range f.only {
			found := false
			for _, r := range runs {
				if r.Name == name {
					kept, found = append(kept, r), true
				}
			}
			if !found {
				return nil, fmt.Errorf("there is no case %q", name)
			}
		}
		runs = kept
	}
	for _, sw := range f.sweep {
		key, values, ok := strings.Cut(sw, "=")
		if !ok {
			return nil, fmt.Errorf("--sweep %s: write key=a,b,c", sw)
		}
		var next []*sim.Scenario
		for _, r := range runs {
			for _, text := range strings.Split(values, ",") {
				v, err := sim.ParseValue(text)
				if err != nil {
					return nil, err
				}
				c, err := r.Set(key, v)
				if err != nil {
					return nil, err
				}
				last := key[strings.LastIndexByte(key, '.')+1:]
				c.Name = strings.TrimSpace(r.Name + " " + last + "=" + text)
				next = append(next, c)
			}
		}
		runs = next
	}
	return runs, nil
}

// expected returns the expectations of the cases that run.
func (f *simFlags) expected(s *sim.Scenario) []sim.Expect {
	if len(f.only) == 0 {
		return s.Expect
	}
	var out []sim.Expect
	for _, e := range s.Expect {
		for _, name := range f.only {
			if e.Case == name {
				out = append(out, e)
			}
		}
	}
	return out
}

// outputFolder is where one of several runs leaves its files.
func outputFolder(dir string, runs int, s *sim.Scenario) string {
	if runs <= 1 {
		return dir
	}
	return filepath.Join(dir, strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' {
			return '_'
		}
		return c
	}, s.Name))
}

func writeOutputs(dir string, grid []*sim.Scenario, runs []*sim.Run) error {
	for i, r := range runs {
		at := outputFolder(dir, len(runs), grid[i])
		if err := os.MkdirAll(at, 0o777); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		for name, b := range r.Output() {
			if err := os.WriteFile(filepath.Join(at, name), b, 0o666); err != nil {
				return fmt.Errorf("output: %w", err)
			}
		}
	}
	return nil
}

func (a *app) showSim(w io.Writer, s *sim.Scenario, grid []*sim.Scenario, runs []*sim.Run, outcomes []sim.Outcome) error {
	if a.json {
		var results []sim.Result
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

// runAll carries the runs out, so many at a time.
func runAll(ctx context.Context, grid []*sim.Scenario, jobs int, bar bool, watch attachment) ([]*sim.Run, error) {
	p := newProgress(grid, bar)
	defer p.close()
	p.attach = watch
	return p.run(ctx, jobs)
}
