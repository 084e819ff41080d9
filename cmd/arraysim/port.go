package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) port() *cobra.Command {
	c := group("port", "Show target ports and fail them over", "  arraysim port set 2 standby")
	c.AddCommand(a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the target ports and their asymmetric access states", Example: "  arraysim port list", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Ports(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, list, admin.WritePorts)
		}),
	}), a.portSet())
	return c
}

func (a *app) portSet() *cobra.Command {
	var change admin.PortChange
	states := admin.AccessStates()
	c := &cobra.Command{
		Use: "set PORT STATE", Short: "Put a target port into another asymmetric access state, until the next start",
		Long: `set changes the state of a port's target port group: ` + strings.Join(states, ", ") + `.
Hosts are notified by a unit attention condition (2A/06) and use another path.`,
		Example: "  arraysim port set 1 unavailable    # fail over to the others\n  arraysim port set 1 optimized      # and back",
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return states, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil {
				return fmt.Errorf("%q is not a valid port; port list shows their numbers", args[0])
			}
			if change.State = args[1]; !slices.Contains(states, change.State) {
				return fmt.Errorf("%q is not a valid state; there are %s", args[1], strings.Join(states, ", "))
			}
			a.running = true
			_, err = a.client().ChangePort(cmd.Context(), n, change)
			return err
		},
	}
	c.Flags().BoolVar(&change.Force, "force", false, "even if it is the last port through which hosts reach their LUNs")
	return c
}
