package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/sim"
)

// migrateFlags are the flags of `arraysim bench migrate`.
type migrateFlags struct {
	caches                            []string
	sizes                             []string
	memory, workingSet, link, storage string
}

// migrateResult is one move of a virtual machine.
type migrateResult struct {
	Caches  string  `json:"caches"`
	Size    uint64  `json:"cache_bytes"`
	Seconds float64 `json:"seconds"`
	Bytes   uint64  `json:"bytes_moved"`
	// Hits are percent of the guest's reads: in the 3 s before it changes hosts, in the first second
	// after, and 20 s after.
	Before float64 `json:"hit_percent_before"`
	After  float64 `json:"hit_percent_after"`
	Later  float64 `json:"hit_percent_later"`
	// IOPS are the guest's reads a second in the same intervals.
	IOPSBefore float64 `json:"iops_before"`
	IOPSAfter  float64 `json:"iops_after"`
}

func (a *app) benchMigrate() *cobra.Command {
	var f migrateFlags
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Measure how long a cached machine takes to move, and what its cache is worth then",
		Long: `migrate moves a virtual machine with a write-through cache to another host, in
virtual time: its memory first, then its cache, over one link, while the guest reads
its working set. For each size of the cache it prints how long that takes, what goes
over the link, and how many reads hit before and after.

Caches move as a file, with the unused part, as vSphere Flash Read Cache moves them;
as the blocks that are in them; or are dropped, and the guest starts with an empty one.`,
		Example: "  arraysim bench migrate --size 256M,1G,4G\n  arraysim bench migrate --size 8G --caches file --link 110MB --memory 8G",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			list, err := f.run()
			if err != nil {
				return err
			}
			return show(a, cmd, list, writeMigrations)
		}),
	}
	c.Flags().StringSliceVar(&f.caches, "caches", []string{"file", "blocks", "drop"}, "what becomes of the cache: file, blocks, drop")
	c.Flags().StringSliceVar(&f.sizes, "size", []string{"256M", "1G", "4G"}, "sizes of the cache")
	c.Flags().StringVar(&f.memory, "memory", "4G", "memory of the virtual machine")
	c.Flags().StringVar(&f.workingSet, "working-set", "128M", "what the guest reads, again and again")
	c.Flags().StringVar(&f.link, "link", "1100MB", "bytes a second of the link; 1100MB is 10 gigabit Ethernet")
	c.Flags().StringVar(&f.storage, "profile", "vnx-raid5", "timing profile of the array")
	return a.jsonFlag(c)
}

// run carries out all moves.
func (f *migrateFlags) run() ([]migrateResult, error) {
	var memory, set, link admin.Size
	for _, x := range []struct {
		flag, text string
		to         *admin.Size
	}{{"--memory", f.memory, &memory}, {"--working-set", f.workingSet, &set}, {"--link", f.link, &link}} {
		if err := x.to.Set(x.text); err != nil {
			return nil, fmt.Errorf("%s: %w", x.flag, err)
		}
	}
	if link == 0 || set < 1<<20 {
		return nil, errors.New("--link is more than 0, and --working-set 1M or more")
	}
	var out []migrateResult
	for _, text := range f.sizes {
		var size admin.Size
		if err := size.Set(text); err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
		for _, caches := range f.caches {
			r, err := f.move(strings.TrimSpace(caches), uint64(size), uint64(memory), uint64(set), uint64(link))
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

// move is one run: the job begins at 3 s, and the run ends 21 s after the guest has changed hosts.
func (f *migrateFlags) move(caches string, size, memory, set, link uint64) (res migrateResult, err error) {
	const before, later = 3, 21
	most := (memory+size)/link + 2 + before
	cache := fmt.Sprintf("policy: write_through, size: %d, block: 8KiB, eviction: lru", size)
	s, err := sim.Parse(fmt.Appendf(nil, `
name: migrate
profile: %s
sample: 1s
until: %ds
arrays: [{name: array, adjust: {cache.read_size: 0}, pools: [{name: pool, mdisks: [{size: 2TiB}]}], volumes: [{name: vmdk, pool: pool, size: %d, filled: %d}]}]
hosts:
  - {name: from, cache: [{name: here, volume: vmdk, %s, warm: %d}]}
  - {name: to, cache: [{name: there, volume: vmdk, %s}]}
jobs:
  - {name: guest, host: from, volume: vmdk, io: 8KiB, outstanding: 4, think: 1ms, span: %d}
  - {name: move, kind: vmotion, host: from, volume: vmdk, to: to, at: %ds, memory: %d, bandwidth: %d, caches: "%s"}
`, f.storage, most+later, 2*set, set, cache, set, cache, set, before, memory, link, caches))
	if err != nil {
		return res, err
	}
	r, err := sim.New(s)
	if err != nil {
		return res, err
	}
	for t := int64(1e9); !r.Advance(t); t += 1e9 {
	}
	r.Finish()
	if err := r.Problem(); err != nil {
		return res, err
	}
	value := func(name string, at, over sim.Duration) float64 { v, _ := r.Value(name, at, over); return v }
	res = migrateResult{Caches: caches, Size: size, Seconds: value("job.move.seconds", 0, 0), Bytes: uint64(value("job.move.bytes", 0, 0))}
	// The series has whole seconds: the last one before, and the first one after.
	there := sim.Duration(int64(before+res.Seconds) * 1e9)
	res.Before, res.IOPSBefore = value("cache.here.hit_percent", there, 2e9), value("cache.here.effective_read_iops", there, 2e9)
	res.After, res.IOPSAfter = value("cache.there.hit_percent", there+2e9, 1e9), value("cache.there.effective_read_iops", there+2e9, 1e9)
	res.Later = value("cache.there.hit_percent", there+20e9, 1e9)
	return res, nil
}

func writeMigrations(w io.Writer, list []migrateResult) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "CACHE\tMOVED AS\tSECONDS\tOVER THE LINK\tHITS BEFORE\tAFTER\t20 s AFTER\tREADS/s BEFORE\tAFTER\t")
	for _, r := range list {
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%.1f %%\t%.1f %%\t%.1f %%\t%.0f\t%.0f\t\n", admin.Size(r.Size).Human(), r.Caches, r.Seconds, admin.Size(r.Bytes).Human(),
			r.Before, r.After, r.Later, r.IOPSBefore, r.IOPSAfter)
	}
	t.Flush()
}
