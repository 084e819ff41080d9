package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
	"github.com/arraysim/arraysim/internal/tidy"
)

func (a *app) counters() *cobra.Command {
	var watch bool
	var interval time.Duration
	c := &cobra.Command{
		Use: "counters", Short: "Show what hosts see and what the array does below",
		Long: `counters prints, by volume, what hosts transfer and describe, and what the cache and the back
end do below that: sums since the array was created. With --watch it continues with the rates of
each interval, or, with --json, with a line of sums.`,
		Example: "  arraysim counters\n  arraysim counters --watch\n  arraysim counters --json | jq '.volumes[].undercover_write_bytes'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 10*time.Millisecond {
				return fmt.Errorf("an interval of %v is too short; give 10ms or more", interval)
			}
			a.running = true
			return a.watch(cmd, watch, interval)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "print the rates of each interval until interrupted")
	c.Flags().DurationVar(&interval, "interval", time.Second, "time between two readings")
	c.AddCommand(a.exportCounters())
	return a.jsonFlag(c)
}

func (a *app) watch(cmd *cobra.Command, watch bool, interval time.Duration) error {
	out, client := cmd.OutOrStdout(), a.client()
	last, err := client.Counters(cmd.Context())
	if err != nil {
		return err
	}
	if !watch {
		return show(a, cmd, last, func(w io.Writer, c admin.Counters) { admin.WriteTotals(w, c) })
	}
	for {
		if a.json {
			if err := admin.WriteLine(out, last); err != nil {
				return err
			}
		}
		time.Sleep(interval)
		now, err := client.Counters(cmd.Context())
		if err != nil {
			return err
		}
		if !a.json {
			if terminal(os.Stdout) {
				fmt.Fprint(os.Stdout, "\x1b[H\x1b[2J") // to the top, on an empty screen; out would write it out
			}
			admin.WriteRates(out, last, now)
		}
		last = now
	}
}

// exportFlags are the flags of `arraysim counters export`.
type exportFlags struct {
	out, format string
	interval    time.Duration
	count       int
}

func (a *app) exportCounters() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use: "export", Short: "Write all counters of the running array to files",
		Long: `export reads all counters of the running array, at once or every interval, and writes
them as CSV or Parquet (the table of docs/counters.md), as the iostats XML files of a
SAN Volume Controller (into a folder, 16 of each kind are kept), or as a batch file of esxtop.

Without --format, the file name determines the format. Ctrl-C ends an export cleanly. A file gets
its name, and takes the place of an older one, when the export ends; until then it is beside it
under a name that ends in .part. To read lines as they come, export to the standard output.`,
		Example: "  arraysim counters export\n" +
			"  arraysim counters export --interval 1s --count 600 --out run.parquet\n" +
			"  arraysim counters export --format iostats --interval 60s --count 0 --out iostats",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.interval < 10*time.Millisecond {
				return fmt.Errorf("an interval of %v is too short; give 10ms or more", f.interval)
			}
			if f.count < 0 {
				return fmt.Errorf("--count is %d; give a number of snapshots, or 0 to continue until interrupted", f.count)
			}
			format, err := f.kind()
			if err != nil {
				return err
			}
			if format == "iostats" && f.interval < time.Second {
				return fmt.Errorf("an interval of %v is too short for iostats, whose files are named by the second; give --interval 1s or more", f.interval)
			}
			if format == "esxtop" && f.count == 1 {
				return errors.New("esxtop has the rates between two snapshots; give --count 2 or more")
			}
			a.running = true
			return a.runExport(cmd, &f, format)
		},
	}
	c.Flags().StringVarP(&f.out, "out", "o", "", "file or, for iostats, folder (default: CSV to the standard output)")
	c.Flags().StringVar(&f.format, "format", "", "csv, parquet, iostats or esxtop (default: by the name of --out)")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "time between two snapshots")
	c.Flags().IntVar(&f.count, "count", 1, "number of snapshots; 0 continues until interrupted")
	return c
}

var exportFormats = []string{"csv", "parquet", "iostats", "esxtop"}

func (f *exportFlags) kind() (string, error) {
	format := f.format
	if format == "" {
		format = strings.TrimPrefix(filepath.Ext(f.out), ".")
	}
	if format == "" {
		format = "csv"
	}
	if !slices.Contains(exportFormats, format) {
		return "", fmt.Errorf("%q is not a format; give --format one of %s", format, strings.Join(exportFormats, ", "))
	}
	if f.out == "" && format != "csv" && format != "esxtop" {
		return "", fmt.Errorf("%s needs --out", format)
	}
	return format, nil
}

// open opens what snapshots go to; done makes it complete, or leaves what there is of it because of an error.
func (f *exportFlags) open(format string, stdout io.Writer) (w export.SnapshotWriter, done func(error) error, err error) {
	if format == "iostats" {
		io, err := export.NewIOStats(f.out, export.IOStatsOptions{})
		return io, func(err error) error { return errors.Join(err, io.Close()) }, err
	}
	out, end := stdout, func(err error) error { return err }
	if f.out != "" {
		file, err := tidy.Create(f.out)
		if err != nil {
			return nil, nil, fmt.Errorf("the counters cannot be written: %w; choose another file with --out", err)
		}
		out, end = file, func(err error) error {
			if err == nil {
				return file.Commit()
			}
			name, _ := file.Leave()
			return fmt.Errorf("the counters cannot be written: %w; what was written until then is in %s", err, name)
		}
	}
	switch format {
	case "parquet":
		w = export.NewParquet(out)
	case "esxtop":
		w = export.NewESXTop(out, "")
	default:
		w = export.NewCSV(out)
	}
	return w, func(err error) error {
		if err == nil {
			err = w.Close()
		}
		return end(err)
	}, nil
}

func (a *app) runExport(cmd *cobra.Command, f *exportFlags, format string) error {
	ctx, _ := signals()
	client := a.client()
	var s metrics.Snapshot
	if err := client.Samples(ctx, &s); err != nil {
		return err
	}
	w, done, err := f.open(format, cmd.OutOrStdout())
	if err != nil {
		return err
	}
	t := time.NewTicker(f.interval)
	defer t.Stop()
	for n := 1; ; n++ {
		if err := w.Write(&s); err != nil {
			return done(err)
		}
		if n == f.count {
			return done(nil)
		}
		select {
		case <-ctx.Done():
			return done(nil)
		case <-t.C:
		}
		switch err := client.Samples(ctx, &s); {
		case err != nil && ctx.Err() != nil:
			return done(nil)
		case err != nil: // what came before is whole
			return errors.Join(err, done(nil))
		}
	}
}
