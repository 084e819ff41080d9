package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/profile"
)

func (a *app) profiles() *cobra.Command {
	c := &cobra.Command{
		Use: "profile [NAME|FILE.yaml]", Short: "List the timing profiles, print one with its sources, or fit one",
		Example: "  arraysim profile\n  arraysim profile svc > mine.yaml\n  arraysim profile fit fio.json", Args: cobra.MaximumNArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				_, err := profile.Load(args[0])
				if err != nil {
					return err
				}
				b, err := profile.Text(args[0])
				if err == nil {
					_, err = cmd.OutOrStdout().Write(b)
				}
				return err
			}
			for _, n := range profile.Names() {
				p, err := profile.Load(n)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-12s %s\n", n, strings.TrimSpace(p.Source))
			}
			return nil
		}),
	}
	c.AddCommand(a.profileFit())
	return c
}
