package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/experiment"
	"github.com/arraysim/arraysim/internal/replay"
	"github.com/arraysim/arraysim/internal/sim"
	"github.com/arraysim/arraysim/internal/size"
)

// virtualFlags describe a replay in virtual time.
type virtualFlags struct {
	scenario, profile, volume, out string
	size                           admin.Size
	record                         time.Duration
	set                            []string
}

func (f *virtualFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.scenario, "virtual", "", "replay in virtual time through the arrays, hosts and caches of this scenario file, beside its jobs")
	c.Flags().StringVar(&f.profile, "profile", "", "replay in virtual time against a volume of an array of this timing profile")
	c.Flags().StringVar(&f.volume, "volume", "", "with --virtual: the volume that the trace goes to (default: the first that is cached, else the first)")
	c.Flags().Var(&f.size, "volume-size", "with --profile: size of the volume (default: 256GiB)")
	c.Flags().StringArrayVar(&f.set, "set", nil, "with --virtual: change a setting of the scenario, key=value")
	c.Flags().StringVarP(&f.out, "out", "o", "", "in virtual time: folder for counters and time series, as sim leaves them")
	c.Flags().DurationVar(&f.record, "record", 0, "in virtual time: write all counters at this interval of simulated time into --out, as sim does")
}

func (f *virtualFlags) given(c *cobra.Command) bool {
	return changed(c, "virtual", "profile", "volume", "volume-size", "set", "out", "record")
}

func (f *virtualFlags) config(live replay.RunConfig, depth bool) (replay.VirtualConfig, error) {
	cfg := replay.VirtualConfig{Profile: f.profile, VolumeSize: int64(f.size), Volume: f.volume, Speed: live.Speed, ReadOnly: live.ReadOnly}
	if depth || live.Speed == 0 {
		cfg.Depth = live.Depth
	}
	switch {
	case (f.scenario == "") == (f.profile == ""):
		return cfg, errors.New("a replay in virtual time needs either --virtual SCENARIO or --profile NAME")
	case f.scenario != "" && f.size != 0:
		return cfg, errors.New("--volume-size goes with --profile; a scenario says how large its volumes are")
	case f.profile != "" && (f.volume != "" || len(f.set) > 0):
		return cfg, errors.New("--volume and --set go with --virtual")
	case f.record < 0 || f.record > 0 && f.out == "":
		return cfg, errors.New("--record is an interval, and needs --out, the folder for its files")
	case f.size%512 != 0 || f.size > 1<<50:
		return cfg, errors.New("--volume-size is a multiple of 512 bytes and at most 1PiB")
	}
	set, err := settings("--set", f.set)
	if err != nil {
		return cfg, err
	}
	for _, x := range set {
		cfg.Set = append(cfg.Set, [2]string{x.Key, x.Value})
	}
	if f.out != "" {
		out := &experiment.Outputs{Dir: func(*sim.Scenario) string { return f.out }, Record: f.record}
		cfg.Attach = out.Attach
	}
	if f.scenario != "" {
		if cfg.Scenario, err = size.ReadFile(f.scenario, size.MaxDocument); err != nil {
			return cfg, fmt.Errorf("--virtual: %w; give the path of a scenario file", err)
		}
	}
	return cfg, nil
}

func (a *app) virtual(cmd *cobra.Command, s *source, f *virtualFlags, live replay.RunConfig) error {
	cfg, err := f.config(live, cmd.Flags().Changed("depth"))
	if err == nil && cfg.Speed > 0 && !s.Times() {
		err = fmt.Errorf("a trace of format %s has no times; replay it with --speed max", s.FormatName)
	}
	if err != nil {
		s.end()
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out, run, err := replay.Virtual(ctx, s, cfg)
	s.end()
	if out == nil {
		return err
	}
	what := f.scenario
	if what == "" {
		what = "profile " + f.profile
	}
	r := liveResult{source: s, Target: what, TargetBytes: out.Size, Seconds: out.Elapsed.Seconds(), SkippedWrites: out.SkippedWrites, Folded: out.Folded,
		Errors: out.Errors, due: cfg.Speed > 0, Virtual: true, caches: run.CacheReport()}
	r.fill(out)
	if e := show(a, cmd, r, writeLive); err == nil {
		err = e
	}
	if err == nil && errors.Is(ctx.Err(), context.Canceled) {
		err = errors.New("the replay was interrupted")
	}
	if err == nil && out.Errors > 0 {
		err = fmt.Errorf("%d requests failed: %s", out.Errors, r.FirstError)
	}
	return err
}
