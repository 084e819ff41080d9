package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) instance() *cobra.Command {
	c := group("instance", "Move the array between nodes", "  arraysim instance move --to b")
	c.AddCommand(a.instanceMove())
	return c
}

func (a *app) instanceMove() *cobra.Command {
	var m admin.Move
	c := &cobra.Command{
		Use: "move", Short: "Move the array to another node that stands by; hosts get no error",
		Long: `move asks the node that has the array. Commands in progress end. Commands that hosts send
meanwhile wait at the node where the hosts are logged in, for 20 s at most. Sessions stay open. Then
this node stands by. If the other node does not take the array within seconds, any node that stands
by does, including this one.`,
		Example: "  arraysim status                   # lists the nodes\n  arraysim instance move --to b",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.running = true
			began := time.Now()
			client := a.client()
			s, err := client.Move(cmd.Context(), m)
			if err != nil {
				return err
			}
			owner, err := client.AwaitMove(cmd.Context(), s)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "node %d %s has the array, after %.1f s\n", owner.ID, owner.Name, time.Since(began).Seconds())
			return nil
		},
	}
	c.Flags().StringVar(&m.To, "to", "", "number or name of the node (required)")
	_ = c.MarkFlagRequired("to")
	return c
}
