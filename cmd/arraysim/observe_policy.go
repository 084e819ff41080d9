package main

import (
	"errors"

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
		Long: `set changes what the flags name. The budget bounds what the data of offloads (XCOPY, ODX,
WRITE SAME of a pattern) may hold of a pool's partition, so that hosts always find room.`,
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
			a.running = true
			now, err := a.client().ChangePolicy(cmd.Context(), p)
			if err != nil {
				return err
			}
			return show(a, cmd, now, admin.WritePolicy)
		},
	}
	f := c.Flags()
	f.IntVar(&budget, "budget", 0, "share of a partition that offloads may hold, in percent; 0: no bound")
	f.IntVar(&host, "host-budget", 0, "the same for the offloads of one host")
	f.BoolVar(&pressure, "budget-pressure", false, "destage as for a full partition while an offload waits for its budget")
	f.StringVar(&admission, "admission", "", "what happens to a write that finds its partition full: fifo, fair or through")
	f.StringVar(&order, "order", "", "which dirty data is destaged first: round-robin or lru")
	f.IntVar(&pieces, "copy-pieces", 0, "pieces of 256 KiB that one copy has under way")
	f.IntVar(&depth, "destage-depth", 0, "destages of up to 256 KiB that an mdisk has under way")
	return a.jsonFlag(c)
}

func (a *app) fault() *cobra.Command {
	c := group("fault", "Make parts of the array fail, and repair them", "  arraysim fault mdisk silver m0 --offline")
	var lost, restored bool
	mirror := &cobra.Command{
		Use: "mirror", Short: "Lose or restore the mirror of the write cache",
		Long: `mirror acts as if the other node of the I/O group failed or came back. Without it the cache is
emptied, and writes go through to the back end.`,
		Example: "  arraysim fault mirror --lost\n  arraysim fault mirror --restored", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error { return a.client().SetMirror(cmd.Context(), restored) }),
	}
	mirror.Flags().BoolVar(&lost, "lost", false, "lose it")
	mirror.Flags().BoolVar(&restored, "restored", false, "give it back")
	mirror.MarkFlagsMutuallyExclusive("lost", "restored")
	mirror.MarkFlagsOneRequired("lost", "restored")

	mode := &cobra.Command{
		Use: "write-mode POOL fast|flush_through|write_through", Short: "Change how a pool takes writes",
		Example: "  arraysim fault write-mode silver write_through", Args: cobra.ExactArgs(2), ValidArgsFunction: a.completePoolArg,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			_, err := a.client().ChangePool(cmd.Context(), args[0], admin.PoolChange{WriteMode: args[1]})
			return err
		}),
	}
	c.AddCommand(a.faultMdisk(), mirror, mode)
	return c
}

func (a *app) faultMdisk() *cobra.Command {
	var offline, online bool
	var bandwidth admin.Size
	var iops uint64
	c := &cobra.Command{
		Use: "mdisk POOL MDISK", Short: "Take an mdisk away, give it back, or slow it down",
		Long: `mdisk changes a back-end disk until the next start. While it is offline, reads and writes of
what lies on it fail, and what is dirty for it stays pinned in the write cache.`,
		Example: "  arraysim fault mdisk silver m0 --offline\n  arraysim fault mdisk silver m0 --online\n  arraysim fault mdisk silver m0 --bandwidth 8MiB --iops 100",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completePoolArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			m := admin.MdiskChange{}
			if offline || online {
				m.Offline = &offline
			}
			if cmd.Flags().Changed("bandwidth") {
				m.Bandwidth = &bandwidth
			}
			if cmd.Flags().Changed("iops") {
				m.IOPS = &iops
			}
			if m == (admin.MdiskChange{}) {
				return errors.New("fault mdisk needs --offline, --online, --bandwidth or --iops")
			}
			a.running = true
			p, err := a.client().ChangeMdisk(cmd.Context(), args[0], args[1], m)
			if err != nil {
				return err
			}
			return show(a, cmd, []admin.Pool{p}, admin.WritePools)
		},
	}
	c.Flags().BoolVar(&offline, "offline", false, "take it away")
	c.Flags().BoolVar(&online, "online", false, "give it back")
	c.Flags().Var(&bandwidth, "bandwidth", "limit in bytes a second, such as 8MiB; 0: none")
	c.Flags().Uint64Var(&iops, "iops", 0, "limit in operations a second; 0: none")
	c.MarkFlagsMutuallyExclusive("offline", "online")
	return a.jsonFlag(c)
}

func (a *app) completePoolArg(cmd *cobra.Command, args []string, s string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completePools(cmd, args, s)
}
