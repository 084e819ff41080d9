package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

func (a *app) volume() *cobra.Command {
	c := group("volume", "Create, list, change and delete volumes", "  arraysim volume list")
	c.AddCommand(a.volumeCreate(), a.volumeList(), a.volumeShow(), a.volumeDelete(), a.volumeResize(), a.volumeClone(), a.volumeZero())
	return c
}

func (a *app) volumeCreate() *cobra.Command {
	n, lun := admin.NewVolume{}, -1
	c := &cobra.Command{
		Use: "create NAME --pool POOL --size SIZE", Short: "Create a volume",
		Example: "  arraysim volume create db --pool gold --size 100GiB --lun 7\n  arraysim volume create raw --pool silver --size 1GiB --thick --block-size 4096",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n.Pool == "" || n.Size == 0 {
				return errors.New("volume create needs --pool and --size")
			}
			a.running = true
			n.Name = args[0]
			if cmd.Flags().Changed("lun") {
				n.Export = &admin.NewExport{LUN: lun}
			}
			v, err := a.client().CreateVolume(cmd.Context(), n)
			if err != nil {
				return err
			}
			return show(a, cmd, v, admin.WriteVolume)
		},
	}
	f := c.Flags()
	f.StringVar(&n.Pool, "pool", "", "pool of the volume")
	f.Var(&n.Size, "size", "size as hosts see it, such as 16GiB")
	f.BoolVar(&n.Thick, "thick", false, "reserve all of its space")
	f.Uint32Var(&n.BlockSize, "block-size", 512, "size of a logical block, 512 or 4096 bytes")
	f.BoolVar(&n.Removable, "removable", false, "set the RMB bit (removable medium): hosts can eject it")
	f.BoolVar(&n.WriteProtect, "write-protect", false, "refuse writes from hosts")
	f.IntVar(&lun, "lun", -1, "export it to every initiator as this LUN")
	noDefault(c, "lun")
	_ = c.RegisterFlagCompletionFunc("pool", a.completePools)
	return a.jsonFlag(c)
}

func (a *app) volumeList() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "list", Short: "List the volumes", Example: "  arraysim volume list --json", Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			v, err := a.client().Volumes(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, v, admin.WriteVolumes)
		}),
	})
}

func (a *app) volumeShow() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use: "show NAME", Short: "Describe a volume, its map and its cache", Example: "  arraysim volume show vol0",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeVolumes,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			v, err := a.client().Volume(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return show(a, cmd, v, admin.WriteVolume)
		}),
	})
}

func (a *app) volumeDelete() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a volume and its data",
		Example: "  arraysim volume delete scratch\n  arraysim volume delete vol1 --force",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.completeVolumes,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			err := a.client().DeleteVolume(cmd.Context(), args[0], force)
			if errors.Is(err, admin.ErrForce) && ask(err) {
				err = a.client().DeleteVolume(cmd.Context(), args[0], true)
			}
			return err
		}),
	}
	c.Flags().BoolVar(&force, "force", false, "do not ask, even if it is exported or has dirty data")
	return c
}

// ask puts a refusal as a question, on a terminal.
func ask(refusal error) bool {
	if !terminal(os.Stdin) {
		return false
	}
	what, _, _ := strings.Cut(refusal.Error(), ";")
	fmt.Fprintf(os.Stderr, "%s. Continue? [y/N] ", admin.Printable(what))
	line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

func (a *app) volumeResize() *cobra.Command {
	var r admin.Resize
	c := &cobra.Command{
		Use: "resize NAME SIZE", Short: "Change a volume's size", Example: "  arraysim volume resize vol0 32GiB",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(2)(cmd, args); err != nil {
				return err
			}
			return r.Size.Set(args[1])
		},
		ValidArgsFunction: a.completeVolumes,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			v, err := a.client().ResizeVolume(cmd.Context(), args[0], r)
			if errors.Is(err, admin.ErrForce) && ask(err) {
				r.Force = true
				v, err = a.client().ResizeVolume(cmd.Context(), args[0], r)
			}
			if err != nil {
				return err
			}
			return show(a, cmd, v, admin.WriteVolume)
		}),
	}
	c.Flags().BoolVar(&r.Force, "force", false, "do not ask, even if data beyond the new end is lost")
	return a.jsonFlag(c)
}

func (a *app) volumeClone() *cobra.Command {
	var n admin.Clone
	c := &cobra.Command{
		Use: "clone SOURCE NAME", Short: "Copy a volume to a new one",
		Example: "  arraysim volume clone vol0 vol0-copy\n  arraysim volume clone vol0 moved --pool silver",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeVolumes,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			n.Name = args[1]
			v, err := a.client().CloneVolume(cmd.Context(), args[0], n)
			if err != nil {
				return err
			}
			return show(a, cmd, v, admin.WriteVolume)
		}),
	}
	c.Flags().StringVar(&n.Pool, "pool", "", "pool of the new volume (default: the source's)")
	_ = c.RegisterFlagCompletionFunc("pool", a.completePools)
	return a.jsonFlag(c)
}

func (a *app) volumeZero() *cobra.Command {
	return &cobra.Command{
		Use: "zero NAME", Short: "Zero all of a volume, as WRITE SAME does", Example: "  arraysim volume zero scratch",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeVolumes,
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			_, err := a.client().ZeroVolume(cmd.Context(), args[0])
			return err
		}),
	}
}
