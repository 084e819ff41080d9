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
		Use: "move", Short: "Move the array to another node that stands by, without an error at hosts",
		Long: `move is asked of the node that has the array. What hosts have under way ends, and what they send
meanwhile waits at the node where they are logged in, for 20 s at most. Sessions stay open. Behind
the move this node stands by. Where the other one does not take the array within seconds, any node
that stands by does, this one too.`,
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
			fmt.Fprintf(cmd.OutOrStdout(), "node %d %s has the array, behind %.1f s\n", owner.ID, owner.Name, time.Since(began).Seconds())
			return nil
		},
	}
	c.Flags().StringVar(&m.To, "to", "", "the number of the node, or its name")
	_ = c.MarkFlagRequired("to")
	return c
}
