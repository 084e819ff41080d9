package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/report"
	"github.com/arraysim/arraysim/internal/tidy"
)

func (a *app) report() *cobra.Command {
	var opt report.Options
	var out, svg, title string
	c := &cobra.Command{
		Use:   "report DIR|FILE|URL...",
		Short: "Draw counters and findings as one HTML page, or as SVG files",
		Long: `report writes one HTML file about one run or several side by side: a verdict in one sentence, the
findings of analyze with their columns explained, and pictures. The file loads nothing from the
network. Any folder of sim --out is a source; one with a folder for each case stands for all of
them. Runs with host caches add the I/Os, latency and throughput of each cached disk, of flash,
peers and datastore, the destaging area, and the ranking of disks by the time saved.

` + sourcesHelp,
		Example: "  arraysim sim testdata/scenarios/clone-beside-writes.yaml --out out && arraysim report out\n  arraysim report run.parquet --out run.html\n  arraysim report before.parquet after.parquet --out compare.html\n  arraysim report /srv/iostats --out incident.html --svg pictures",
		Args:    cobra.MinimumNArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			ctx, _ := signals()
			var runs []report.Run
			for _, source := range args {
				found, err := report.LoadRuns(ctx, source, opt)
				if err != nil {
					return fmt.Errorf("report: %w", err)
				}
				runs = append(runs, found...)
			}
			if title == "" {
				title = "arraysim: " + strings.Join(args, " against ")
			}
			r := report.New(title, runs...)
			if err := tidy.Replace(out, r.WriteHTML); err != nil {
				return fmt.Errorf("report: %w", err)
			}
			if svg != "" {
				if err := writePictures(r, svg); err != nil {
					return fmt.Errorf("report: %w", err)
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s: %d pictures\n", r.Verdict(), out, len(r.Pictures))
			return err
		}),
	}
	sourceFlags(c, &opt)
	c.Flags().StringVarP(&out, "out", "o", "report.html", "the HTML file")
	c.Flags().StringVar(&svg, "svg", "", "folder for each picture as an SVG file, too")
	c.Flags().StringVar(&title, "title", "", "title of the page (default: the sources)")
	return c
}

func writePictures(r *report.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return r.SVG(func(name, svg string) error { return tidy.ReplaceBytes(filepath.Join(dir, name), []byte(svg)) })
}
