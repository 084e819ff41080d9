package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

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
	c.Flags().BoolVar(&follow, "follow", false, "continue until interrupted")
	return a.jsonFlag(c)
}
