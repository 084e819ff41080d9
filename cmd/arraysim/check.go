package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) check() *cobra.Command {
	var repair bool
	c := a.jsonFlag(&cobra.Command{
		Use: "check", Short: "Verify the array's maps, cache, data, checksums and counters",
		Long: `check has the running daemon verify itself, in small steps between host commands. Without a
daemon it opens the data folder, recovers the log after a crash, and verifies that. It reads all
data at rest, and exits with status 1 if it finds problems. --repair restores sectors with a
single flipped bit.`,
		Example: "  arraysim check\n  arraysim check --data /srv/array --json\n  arraysim check --repair",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			opt := admin.CheckOptions{Repair: repair, Log: admin.PrintableWriter(os.Stderr)}
			if a.json {
				opt.Log = io.Discard
			} else if terminal(os.Stderr) {
				bars := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
				bar := bars.AddBar(0, mpb.BarRemoveOnComplete(), mpb.PrependDecorators(decor.Name("data at rest "), decor.CountersKibiByte("% .1f / % .1f")))
				opt.Progress = func(read, total int64) {
					bar.SetTotal(total, false)
					bar.SetCurrent(read)
				}
				defer bars.Wait()
				defer bar.Abort(true)
			}
			r, err := admin.Check(cmd.Context(), a.folder(), opt)
			if err != nil {
				return err
			}
			if err := show(a, cmd, r, admin.WriteCheck); err != nil {
				return err
			}
			if !r.OK {
				return errSilent
			}
			return nil
		}),
	})
	c.Flags().BoolVar(&repair, "repair", false, "restore sectors of data at rest in which a single bit was flipped; the daemon must be stopped")
	return c
}
