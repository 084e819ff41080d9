package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) check() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "check", Short: "Verify the array's maps, cache, checksums and counters",
		Long: `check asks the running daemon to verify itself; hosts wait while it does. When no
daemon runs it opens the data folder, which recovers the log of a crash, and
verifies that. It exits with status 1 when there are problems.`,
		Example: "  arraysim check\n  arraysim check --data /srv/array --json",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			progress := io.Writer(os.Stderr)
			if a.json {
				progress = io.Discard
			}
			r, err := admin.Check(cmd.Context(), a.folder(), progress)
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
}
