package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) fault() *cobra.Command {
	c := group("fault", "Make parts of the array fail, and repair them", "  arraysim fault mdisk silver m0 --offline")
	var lost, restored bool
	mirror := &cobra.Command{
		Use: "mirror", Short: "Lose or restore the mirror of the write cache",
		Long: `mirror acts as if the other node of the I/O group failed or came back. While the mirror is
lost, the cache is emptied and writes go through to the back end.`,
		Example: "  arraysim fault mirror --lost\n  arraysim fault mirror --restored", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("lost") { // --lost=false restores it
				restored = !lost
			}
			return a.client().SetMirror(cmd.Context(), restored)
		}),
	}
	mirror.Flags().BoolVar(&lost, "lost", false, "lose the mirror")
	mirror.Flags().BoolVar(&restored, "restored", false, "restore the mirror")
	mirror.MarkFlagsMutuallyExclusive("lost", "restored")
	mirror.MarkFlagsOneRequired("lost", "restored")

	mode := &cobra.Command{
		Use: "write-mode POOL fast|flush_through|write_through", Short: "Change how a pool takes writes",
		Long: `write-mode changes, until the next start, where the data of a write to the pool goes before the
host gets its answer: fast, into the write cache; flush_through, into the cache and to the back
end; write_through, to the back end without the cache.`,
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
		Use: "mdisk POOL MDISK", Short: "Take an mdisk offline, bring it back, or slow it down",
		Long: `mdisk changes a back-end disk until the next start. While it is offline, reads and writes of its
data fail, and its dirty data stays pinned in the write cache.`,
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
	c.Flags().BoolVar(&offline, "offline", false, "take the mdisk offline")
	c.Flags().BoolVar(&online, "online", false, "bring the mdisk back online")
	c.Flags().Var(&bandwidth, "bandwidth", "limit in bytes a second, such as 8MiB; 0: none")
	c.Flags().Uint64Var(&iops, "iops", 0, "limit in operations a second; 0: none")
	c.MarkFlagsMutuallyExclusive("offline", "online")
	return a.jsonFlag(c)
}
