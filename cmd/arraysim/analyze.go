package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/report"
)

// sourceFlags are the flags of commands that read counters of somebody.
func sourceFlags(c *cobra.Command, opt *report.Options) {
	c.Flags().StringVar(&opt.Mapping, "mapping", "", "YAML file that explains the columns of another tool's CSV")
	c.Flags().DurationVar(&opt.Last, "last", time.Hour, "with Prometheus: how far back to read")
	c.Flags().DurationVar(&opt.Step, "step", 0, "with Prometheus: length of a sample (default: 1/240 of --last, but at least 5s)")
}

const sourcesHelp = `Counters come from one of these:
  - a file or folder that counters export wrote (CSV, Parquet);
  - a folder that sim --out or serve --record wrote;
  - Prometheus: its URL, or a folder of saved answers of query_range;
  - statistics files of a SAN Volume Controller, Storwize or Spectrum Virtualize: a folder with
    Nv_stats and Nn_stats files, and the output of lsvdisk, lsvdiskcopy and lsmdiskgrp with
    -delim :, in files of these names;
  - any CSV file, with a mapping (docs/counters.md).`

func (a *app) analyze() *cobra.Command {
	var opt report.Options
	c := &cobra.Command{
		Use:   "analyze DIR|FILE|URL",
		Short: "Find undercover writes and response-time towers in counters, and their causes",
		Long: `analyze reads counters of arraysim or of real arrays. It reports which pool's partition of the
write cache was full and since when, which volume held it and whether hosts wrote that data, what
was written undercover, and which response-time towers followed: whom they hit, and what part is
due to the offload and to the partition's cap.

Findings do not use the origin label, which real arrays lack; its figures are shown beside them.
The limits of the counters are listed too: missing ones, and the bytes below which they prove
nothing.

` + sourcesHelp,
		Example: "  arraysim sim testdata/scenarios/clone-beside-writes.yaml --out out && arraysim analyze out\n  arraysim analyze run.parquet\n  arraysim analyze /srv/iostats --json\n  arraysim analyze http://127.0.0.1:9090 --last 2h",
		Args:    cobra.ExactArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			ctx, _ := signals()
			d, err := report.Load(ctx, args[0], opt)
			if err != nil {
				return fmt.Errorf("analyze: %w", err)
			}
			f := report.Analyze(d)
			if !a.json {
				return f.WriteText(cmd.OutOrStdout())
			}
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(f)
		}),
	}
	sourceFlags(c, &opt)
	return a.jsonFlag(c)
}
