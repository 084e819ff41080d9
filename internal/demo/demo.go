// Package demo shows an undercover write on an array that serves: it fills a volume over iSCSI, clones it
// by EXTENDED COPY, and measures meanwhile what the writes of another volume of the same pool take. It uses
// the array as any host does, by sessions to its portal, and reads the counters of both layers through the
// daemon's interface.
package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// Names of what the demonstration creates. The images' pool is fast; the shared pool has one mdisk of limited
// bandwidth and moves the data of a copy, and both the clone and its victim lie in it.
const (
	ImagePool  = "demo-images"
	SharedPool = "demo-shared"
	Golden     = "demo-golden"
	Clone      = "demo-clone"
	Victim     = "demo-victim"
)

const (
	// bandwidth of the shared pool's mdisk, in bytes a second: what a few rotating disks give.
	bandwidth = 16 << 20
	// atFull is for how long the clone keeps its pool's partition full.
	atFull = 5 * time.Second
	// alone is how long the victim writes before the clone, and after it.
	alone    = 2 * time.Second
	mebibyte = 1 << 20
)

// Phase is a part of the demonstration.
type Phase string

// The phases, in their order.
const (
	Filling Phase = "fill"   // a host writes the golden volume
	Before  Phase = "before" // the victim writes alone
	Cloning Phase = "clone"  // the clone is made, and the victim writes
	After   Phase = "after"  // the victim writes alone again
)

// Options say where the demonstration runs.
type Options struct {
	Array *admin.Client
	// Prefer is the first number to try for the LUNs.
	Prefer int
	// Every is the time between two samples.
	Every time.Duration
	// Show is called with every sample, from one goroutine; nil shows nothing.
	Show func(Sample)
}

// Result is what a demonstration has measured. Bytes are what the counters of both layers grew by.
type Result struct {
	// Golden is what the host wrote over the wire to fill the golden volume.
	Golden admin.Size `json:"golden_written_bytes"`
	// Cloned is what the EXTENDED COPY commands described.
	Cloned admin.Size `json:"cloned_bytes"`
	// CloneRead and CloneWritten are the bytes on the wire to and from the clone, as hosts see them.
	CloneRead    admin.Size `json:"clone_host_read_bytes"`
	CloneWritten admin.Size `json:"clone_host_written_bytes"`
	// Undercover is what the array wrote to the clone below the host layer.
	Undercover admin.Size `json:"clone_undercover_bytes"`
	// Peak is the largest share of its pool's partition of the write cache that the clone held, from 0 to 1.
	Peak float64 `json:"clone_peak_cache_share"`
	// Seconds is how long the clone took.
	Seconds float64 `json:"clone_seconds"`
	// What the victim's writes took, as its host measured.
	Before Latency `json:"victim_before"`
	During Latency `json:"victim_during"`
	After  Latency `json:"victim_after"`
	// Counters are the sums of the demonstration's volumes and pools when it ended.
	Counters admin.Counters `json:"counters"`
}

// Run creates the demonstration's pools and volumes, runs it, and leaves them for a look. What an earlier run
// left under the same names is deleted first. It ends with an error of ctx when that ends first.
func Run(ctx context.Context, opt Options) (*Result, error) {
	status, err := opt.Array.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !served(status) {
		return nil, errNoPortal
	}
	if err := Remove(ctx, opt.Array); err != nil {
		return nil, err
	}
	l, err := create(ctx, opt.Array, opt.Prefer)
	if err != nil {
		return nil, err
	}
	d := &demo{opt: opt, layout: l, status: status, began: time.Now(), result: &Result{}}
	if err := d.run(ctx); err != nil {
		return nil, errors.Join(ctx.Err(), err)
	}
	return d.result, nil
}

// demo is a run under way.
type demo struct {
	opt    Options
	layout *layout
	status admin.Status
	began  time.Time
	result *Result

	victim  *victim
	sampler *sampler
}

func (d *demo) run(ctx context.Context) error {
	first, err := d.opt.Array.Counters(ctx)
	if err != nil {
		return err
	}
	d.sampler = newSampler(d.opt, d.began, first)
	d.sampler.total = d.layout.size
	stopSampler := d.sampler.start(ctx)
	defer stopSampler()

	if err := d.fill(ctx); err != nil {
		return fmt.Errorf("filling %s: %w", Golden, err)
	}
	if d.victim, err = d.startVictim(ctx); err != nil {
		return fmt.Errorf("the victim: %w", err)
	}
	defer d.victim.stop()
	d.sampler.watch(d.victim)
	d.enter(Before)
	if err := wait(ctx, alone); err != nil {
		return err
	}
	d.result.Before = d.victim.phase()
	d.enter(Cloning)
	start := time.Now()
	if err := d.clone(ctx); err != nil {
		return fmt.Errorf("cloning %s: %w", Golden, err)
	}
	d.result.Seconds = time.Since(start).Seconds()
	d.result.During = d.victim.phase()
	d.enter(After)
	if err := wait(ctx, alone); err != nil {
		return err
	}
	d.result.After = d.victim.phase()
	if err := d.victim.stop(); err != nil {
		return fmt.Errorf("the victim: %w", err)
	}
	stopSampler()
	return d.conclude(ctx, first)
}

// enter begins a phase.
func (d *demo) enter(p Phase) { d.sampler.enter(p) }

// conclude reads the counters once more and says what grew.
func (d *demo) conclude(ctx context.Context, first admin.Counters) error {
	last, err := d.opt.Array.Counters(ctx)
	if err != nil {
		return err
	}
	// The volumes are new, but an array may be so fast that the first reading has seen writes: none are there yet.
	old, now := volumes(first), volumes(last)
	r := d.result
	r.Golden = now[Golden].Written - old[Golden].Written
	r.Cloned = now[Clone].Described["xcopy_dst"] - old[Clone].Described["xcopy_dst"]
	r.CloneRead = now[Clone].Read - old[Clone].Read
	r.CloneWritten = now[Clone].Written - old[Clone].Written
	r.Undercover = now[Clone].Undercover - old[Clone].Undercover
	r.Peak = d.sampler.peak()
	r.Counters = own(last)
	return nil
}

// volumes returns the counters of volumes by name.
func volumes(c admin.Counters) map[string]admin.VolumeCounters {
	m := make(map[string]admin.VolumeCounters, len(c.Volumes))
	for _, v := range c.Volumes {
		m[v.Volume] = v
	}
	return m
}

// own returns what of a reading is the demonstration's.
func own(c admin.Counters) admin.Counters {
	out := admin.Counters{Time: c.Time, CacheSize: c.CacheSize}
	all := volumes(c)
	for _, name := range []string{Golden, Clone, Victim} {
		if v, ok := all[name]; ok {
			out.Volumes = append(out.Volumes, v)
		}
	}
	for _, p := range c.Pools {
		if p.Pool == ImagePool || p.Pool == SharedPool {
			out.Pools = append(out.Pools, p)
		}
	}
	return out
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
