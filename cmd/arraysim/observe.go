package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) check() *cobra.Command {
	var repair bool
	c := a.jsonFlag(&cobra.Command{
		Use: "check", Short: "Verify the array's maps, cache, data, checksums and counters",
		Long: `check asks the running daemon to verify itself, in steps between which hosts are
served. When no daemon runs it opens the data folder, which recovers the log of a
crash, and verifies that. All data at rest is read. It exits with status 1 when there
are problems. --repair restores sectors in which a single bit was flipped.`,
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

func (a *app) status() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "status", Short: "Show the addresses and the state of the running array", Example: "  arraysim status --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			s, err := a.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, s, admin.WriteStatus)
		}),
	})
}

func (a *app) host() *cobra.Command {
	c := group("host", "See who is logged in", "  arraysim host list")
	c.AddCommand(a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the initiators that are logged in", Example: "  arraysim host list", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			s, err := a.client().Sessions(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, s, admin.WriteSessions)
		}),
	}))
	return c
}

func (a *app) events() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use: "events", Short: "Show recent events",
		Long: `events prints who changed what, which volumes were written below the host layer, which
partitions of the write cache were full and who held them, and which initiators came and went.`,
		Example: "  arraysim events\n  arraysim events --follow --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			client, last := a.client(), uint64(0)
			for {
				list, err := client.Events(cmd.Context(), last)
				if err != nil {
					return err
				}
				for _, e := range list {
					last = e.Number
					if a.json {
						if err := admin.WriteLine(cmd.OutOrStdout(), e); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(cmd.OutOrStdout(), "%s  %-10s  %s\n", e.Time.Local().Format(time.DateTime), e.Kind, e.Text)
				}
				if !follow {
					return nil
				}
				time.Sleep(time.Second)
			}
		}),
	}
	c.Flags().BoolVar(&follow, "follow", false, "go on until interrupted")
	return a.jsonFlag(c)
}

func (a *app) token() *cobra.Command {
	var link bool
	c := &cobra.Command{
		Use: "token", Short: "Print the token with which the page and scripts change the array",
		Long: `token prints what stands in the file admin.token of the data folder. Who has it may change and
destroy what the array holds. Another is made when the file is deleted and the daemon started again.`,
		Example: "  arraysim token\n  xdg-open \"$(arraysim token --link)\"\n" +
			"  curl -X POST -H \"Authorization: Bearer $(arraysim token)\" http://127.0.0.1:9400/api/v1/check",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			t, err := admin.ReadToken(a.folder())
			if err != nil {
				return err
			}
			if link {
				s, err := a.client().Status(cmd.Context())
				if err != nil {
					return err
				}
				if s.Page == "" {
					return fmt.Errorf("the daemon of %s serves no page; start it with --metrics 127.0.0.1:9400", a.folder())
				}
				t = s.Page + "#token=" + t
			}
			fmt.Fprintln(cmd.OutOrStdout(), t)
			return nil
		}),
	}
	c.Flags().BoolVar(&link, "link", false, "print the page's address with the token in it")
	return c
}
