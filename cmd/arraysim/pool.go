package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) pool() *cobra.Command {
	c := group("pool", "Create, list and delete pools", "  arraysim pool list")
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Delete a pool that has no volumes", Example: "  arraysim pool delete bronze",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completePoolArg,
		RunE: a.do(func(cmd *cobra.Command, args []string) error { return a.client().DeletePool(cmd.Context(), args[0]) }),
	}
	c.AddCommand(remove, a.poolCreate(), a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the pools", Example: "  arraysim pool list", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			p, err := a.client().Pools(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, p, admin.WritePools)
		}),
	}))
	return c
}

// mostMdisks are those that a pool can have. The daemon refuses more of them, too, but they are not to be written down for it.
const mostMdisks = 4096

func (a *app) poolCreate() *cobra.Command {
	n := admin.NewPool{}
	var size, bandwidth admin.Size
	var disks, group int
	var iops uint64
	c := &cobra.Command{
		Use: "create NAME --size SIZE", Short: "Create a pool with new mdisks",
		Example: "  arraysim pool create bronze --size 1TiB --mdisks 2 --bandwidth 100MiB --iops 500 --copy-data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if size == 0 || disks < 1 {
				return errors.New("pool create needs --size, and one mdisk or more")
			}
			a.running = true
			if disks > mostMdisks {
				return fmt.Errorf("%d mdisks are too many: a pool can have %d", disks, mostMdisks)
			}
			if n.Name = args[0]; cmd.Flags().Changed("io-group") {
				n.IOGroup = &group
			}
			for i := range disks {
				n.Mdisks = append(n.Mdisks, admin.NewMdisk{Name: fmt.Sprintf("m%d", i), Size: size / admin.Size(disks), Bandwidth: bandwidth, IOPS: iops})
			}
			p, err := a.client().CreatePool(cmd.Context(), n)
			if err != nil {
				return err
			}
			return show(a, cmd, []admin.Pool{p}, admin.WritePools)
		},
	}
	f := c.Flags()
	f.Var(&size, "size", "size of all mdisks together, such as 1TiB")
	f.IntVar(&disks, "mdisks", 2, "number of mdisks")
	f.IntVar(&group, "io-group", 0, "number of its I/O group (default: the one with the fewest pools)")
	f.Var(&bandwidth, "bandwidth", "limit of each mdisk, in bytes a second, such as 100MiB (default: none)")
	f.Uint64Var(&iops, "iops", 0, "limit of each mdisk, in operations a second (0: none)")
	f.BoolVar(&n.CopyData, "copy-data", false, "offloaded copies move data, even inside the pool")
	return a.jsonFlag(c)
}
