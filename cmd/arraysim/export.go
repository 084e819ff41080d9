package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) export() *cobra.Command {
	c := group("export", "Show volumes to initiators as LUNs", "  arraysim export add vol0 --lun 5")
	e := admin.Export{}
	add := &cobra.Command{
		Use: "add VOLUME --lun LUN", Short: "Export a volume",
		Example: "  arraysim export add db --lun 7\n  arraysim export add db --lun 7 --initiator iqn.1993-08.org.debian:01:host1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("lun") {
				return errors.New("export add needs --lun")
			}
			a.running = true
			e.Volume = args[0]
			return a.client().AddExport(cmd.Context(), e)
		},
	}
	add.Flags().IntVar(&e.LUN, "lun", 0, "number of the LUN")
	add.Flags().StringSliceVar(&e.Initiators, "initiator", nil, "name of an initiator that may see it (default: all)")
	lun := -1
	remove := &cobra.Command{
		Use: "remove VOLUME", Short: "Remove a volume's exports, or one of them",
		Example: "  arraysim export remove db --lun 7",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lun < 0 && cmd.Flags().Changed("lun") {
				return fmt.Errorf("LUN %d: a LUN is 0 to 16383", lun)
			}
			a.running = true
			return a.client().RemoveExport(cmd.Context(), args[0], lun)
		},
	}
	remove.Flags().IntVar(&lun, "lun", -1, "the LUN (default: all of the volume)")
	noDefault(remove, "lun")
	c.AddCommand(add, remove, a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the exports", Example: "  arraysim export list", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			list, err := a.client().Exports(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, list, admin.WriteExports)
		}),
	}))
	return c
}
