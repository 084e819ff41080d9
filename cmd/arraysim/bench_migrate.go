package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/experiment"
)

// migrateFlags are the flags of `arraysim bench migrate`.
type migrateFlags struct {
	caches                            []string
	sizes                             []string
	memory, workingSet, link, profile string
}

func (a *app) benchMigrate() *cobra.Command {
	var f migrateFlags
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Measure the migration of a virtual machine with its host-side cache",
		Long: `migrate moves a virtual machine with a write-through cache to another host, in virtual time.
Its memory moves first, then its cache, over the same link, while the guest reads its working
set. For each cache size it prints the duration, the bytes moved, and the hit ratio before and
after.

A cache moves as a file, including unused space, as vSphere Flash Read Cache does (file); as
the blocks that it holds (blocks); or not at all, so that the guest starts cold (drop).`,
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
	c.Flags().StringSliceVar(&f.caches, "caches", []string{"file", "blocks", "drop"}, "how the cache moves: file, blocks, drop")
	c.Flags().StringSliceVar(&f.sizes, "size", []string{"256M", "1G", "4G"}, "sizes of the cache")
	c.Flags().StringVar(&f.memory, "memory", "4G", "memory of the virtual machine")
	c.Flags().StringVar(&f.workingSet, "working-set", "128M", "data that the guest reads repeatedly")
	c.Flags().StringVar(&f.link, "link", "1100MB", "bandwidth of the link in bytes per second; 1100MB is 10 gigabit Ethernet")
	c.Flags().StringVar(&f.profile, "profile", "vnx-raid5", "timing profile of the array")
	return a.jsonFlag(c)
}

// run carries out all moves.
func (f *migrateFlags) run() ([]experiment.Migrated, error) {
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
		return nil, errors.New("give a --link above 0 and a --working-set of 1M or more")
	}
	var out []experiment.Migrated
	for _, text := range f.sizes {
		var size admin.Size
		if err := size.Set(text); err != nil {
			return nil, fmt.Errorf("--size: %w", err)
		}
		// The cache moves behind the memory, and the guest reads all the time.
		if days := (uint64(memory)/uint64(link) + uint64(size)/uint64(link)) / 86400; days > 0 {
			return nil, fmt.Errorf("--link %s: a move of %s and %s takes more than %d days at that rate; give bytes per second with a unit, such as 110MB", f.link, f.memory, text, days)
		}
		for _, caches := range f.caches {
			m := experiment.Migration{Caches: strings.TrimSpace(caches), Size: uint64(size), Memory: uint64(memory), WorkingSet: uint64(set),
				Link: uint64(link), Profile: f.profile}
			r, err := m.Run()
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}

func writeMigrations(w io.Writer, list []experiment.Migrated) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "CACHE\tMOVED AS\tSECONDS\tOVER THE LINK\tHITS BEFORE\tAFTER\t20 s AFTER\tREADS/s BEFORE\tAFTER\t")
	for _, r := range list {
		fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%.1f %%\t%.1f %%\t%.1f %%\t%.0f\t%.0f\t\n", admin.Size(r.Size).Human(), r.Caches, r.Seconds, admin.Size(r.Bytes).Human(),
			r.Before, r.After, r.Later, r.IOPSBefore, r.IOPSAfter)
	}
	t.Flush()
}
