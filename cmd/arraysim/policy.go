package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) policy() *cobra.Command {
	c := group("policy", "Show and change how the write cache admits and destages", "  arraysim policy show")
	c.AddCommand(a.jsonFlag(&cobra.Command{
		Use: "show", Short: "Print the policy in force", Example: "  arraysim policy show", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			p, err := a.client().Policy(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, p, admin.WritePolicy)
		}),
	}), a.policySet())
	return c
}

func (a *app) policySet() *cobra.Command {
	var admission, order string
	var budget, host, pieces, depth int
	var pressure bool
	c := &cobra.Command{
		Use: "set", Short: "Change the policy, and keep it over restarts",
		Long: `set changes the settings given as flags. The budget bounds the share of a pool's partition that
data of offloads (XCOPY, ODX, WRITE SAME of a pattern) may hold, so that hosts always find room.
A write that finds its partition full waits in order of arrival (--admission fifo), takes
turns with other volumes, by bytes (fair), or goes to the back end without the cache (through).`,
		Example: "  arraysim policy set --budget 25 --budget-pressure\n  arraysim policy set --admission fair --order lru",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := admin.PolicyChange{}
			given := cmd.Flags().Changed
			number := func(to **int, flag string, from *int) {
				if given(flag) {
					*to = from
				}
			}
			number(&p.BudgetPercent, "budget", &budget)
			number(&p.BudgetHostPercent, "host-budget", &host)
			number(&p.CopyPieces, "copy-pieces", &pieces)
			number(&p.DestageDepth, "destage-depth", &depth)
			if given("budget-pressure") {
				p.BudgetPressure = &pressure
			}
			if given("admission") {
				p.Admission = &admission
			}
			if given("order") {
				p.Order = &order
			}
			if p == (admin.PolicyChange{}) {
				return errors.New("policy set needs a flag that says what to change")
			}
			type value struct {
				flag string
				n    int
			}
			for _, x := range []value{{"budget", budget}, {"host-budget", host}} {
				if x.n < 0 || x.n > 100 {
					return fmt.Errorf("--%s is %d; give a percentage from 0 to 100", x.flag, x.n)
				}
			}
			for _, x := range []value{{"copy-pieces", pieces}, {"destage-depth", depth}} {
				if given(x.flag) && x.n < 1 {
					return fmt.Errorf("--%s is %d; give 1 or more", x.flag, x.n)
				}
			}
			a.running = true
			now, err := a.client().ChangePolicy(cmd.Context(), p)
			if err != nil {
				return err
			}
			return show(a, cmd, now, admin.WritePolicy)
		},
	}
	f := c.Flags()
	f.IntVar(&budget, "budget", 0, "share of a partition that offloads may hold, in percent; 0: no limit")
	f.IntVar(&host, "host-budget", 0, "the same for the offloads of one host")
	f.BoolVar(&pressure, "budget-pressure", false, "destage as for a full partition while an offload waits for its budget")
	f.StringVar(&admission, "admission", "", "what happens to a write that finds its partition full: fifo, fair or through")
	f.StringVar(&order, "order", "", "which dirty data is destaged first: round-robin or lru")
	f.IntVar(&pieces, "copy-pieces", 0, "pieces of 256 KiB that one copy has in flight")
	f.IntVar(&depth, "destage-depth", 0, "destages of up to 256 KiB that an mdisk has in flight")
	return a.jsonFlag(c)
}
