package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// versionInfo is what a binary says of itself.
type versionInfo struct {
	admin.Build
	Formats []format `json:"formats"`
}

// format is one on disk, by number. Of the versions from Reads to Writes all are read.
type format struct {
	Name   string `json:"name"`
	Writes int    `json:"writes"`
	Reads  int    `json:"reads"` // the oldest that is read
}

func (a *app) version() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "version", Short: "Print the version, what it was built from, and the formats it reads and writes",
		Example: "  arraysim version\n  arraysim version --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{Build: admin.ThisBuild(), Formats: []format{
				{"nvram", array.FormatVersion, array.OldestFormat},
				{"flash", tier.FormatVersion, tier.FormatVersion},
			}}
			return show(a, cmd, v, writeVersion)
		}),
	})
}

func writeVersion(w io.Writer, v versionInfo) {
	fmt.Fprintln(w, "arraysim "+v.Version)
	commit := v.Commit
	if v.Modified {
		commit += ", modified"
	}
	fmt.Fprintf(w, "  commit    %s\n  built by  %s for %s\n", commit, v.Go, v.Platform)
	for _, f := range v.Formats {
		reads := ""
		if f.Reads < f.Writes {
			reads = fmt.Sprintf(", reads %d to %d", f.Reads, f.Writes)
		}
		fmt.Fprintf(w, "  %-9s format %d%s\n", f.Name, f.Writes, reads)
	}
}
