package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/sim"
)

// VirtualConfig says how a trace is replayed in virtual time.
type VirtualConfig struct {
	// Scenario is a scenario's text: arrays, hosts with or without caches, other load. Without one the
	// trace goes to one volume of VolumeSize bytes of an array of Profile.
	Scenario   []byte
	Profile    string
	VolumeSize int64
	// Set are settings of the scenario to change, key and value; see sim.Scenario.Set.
	Set [][2]string
	// Volume that the trace goes to; "" is the first cached one, else the first of all.
	Volume string
	// Depth, Speed and ReadOnly as in RunConfig. By the trace's timing (Speed above 0) Depth 0 is no bound.
	Depth    int
	Speed    float64
	ReadOnly bool
	// Attach, if it is there, is called with the run before it begins; done when it is over, at its end or before. What was
	// attached is kept unless the run failed.
	Attach func(*sim.Scenario, *sim.Run) (done func(keep bool) error, err error)
}

const defaultVolume = 256 << 30

// Virtual replays a trace through simulated hosts and arrays until its end, or until ctx ends, which is no error. The same
// trace and configuration give the same outcome. The Run tells what else happened.
func Virtual(ctx context.Context, src Source, cfg VirtualConfig) (*Outcome, *sim.Run, error) {
	if src.Objects() {
		return nil, nil, errors.New("a trace of objects has no addresses to replay; run it through caches with --policy")
	}
	s, err := cfg.scenario()
	if err != nil {
		return nil, nil, err
	}
	s.Replay = src
	r, err := sim.New(s)
	if err != nil {
		return nil, nil, err
	}
	done := func(bool) error { return nil }
	if cfg.Attach != nil && ctx.Err() == nil { // else it has not begun, and what an earlier one has left stays
		if done, err = cfg.Attach(s, r); err != nil {
			return nil, nil, err
		}
	}
	r.Interrupt(func() bool { return ctx.Err() != nil })
	const slice = 1e9
	begun := ctx.Err() == nil // Attach may take its time
	for t := int64(slice); !r.Advance(t) && ctx.Err() == nil; t += slice {
	}
	r.Finish()
	p := r.Replayed()
	out := &Outcome{Reads: Latency(p.Reads), Writes: Latency(p.Writes), SkippedWrites: p.SkippedWrites, Folded: p.Folded,
		Elapsed: time.Duration(p.Nanoseconds), Errors: p.Failed, Size: p.VolumeBytes}
	if out.Errors > 0 {
		out.FirstError = errors.New("the array refused it; see the run's counters")
	}
	return out, r, errors.Join(r.Problem(), done(begun && r.Problem() == nil))
}

func (cfg *VirtualConfig) scenario() (*sim.Scenario, error) {
	text := cfg.Scenario
	if text == nil {
		size := cfg.VolumeSize
		if size == 0 {
			size = defaultVolume
		}
		text = fmt.Appendf(nil, `
name: replay
profile: %q
arrays:
  - name: array
    pools: [{name: pool, mdisks: [{count: 4, size: %d}]}]
    volumes: [{name: volume, pool: pool, size: %d, filled: %d}]
hosts: [{name: host}]
`, cfg.Profile, size, size, size)
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, kv := range cfg.Set {
		v, err := sim.ParseValue(kv[1])
		if err != nil {
			return nil, err
		}
		if s, err = s.Set(kv[0], v); err != nil {
			return nil, err
		}
	}
	s.Until, s.Cases, s.Expect = 0, nil, nil
	return s, s.AddReplay(cfg.Volume, sim.TraceSpec{Speed: cfg.Speed, Depth: cfg.Depth, ReadOnly: cfg.ReadOnly})
}
