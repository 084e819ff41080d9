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
		return nil, errors.New("--link is more than 0, and --working-set 1M or more")
	}
	var out []experiment.Migrated
	for _, text := range f.sizes {
		var size admin.Size
		if err := size.Set(text); err != nil {
			return nil, fmt.Errorf("--size: %w", err)
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
