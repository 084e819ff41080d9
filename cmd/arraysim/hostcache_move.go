package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/size"
)

// cacheDrop is the other way of moving a disk to another host: what is in its cache stays behind.
func (a *app) cacheDrop() *cobra.Command {
	var socket string
	c := &cobra.Command{
		Use: "drop", Short: "Empty a running cache of all clean data",
		Long: `drop discards all clean blocks of a running cache, as a cold restart, a resume, a reverted
snapshot or a migration without the cache does. Dirty blocks stay. It prints the number of
blocks dropped. Reads go to the array until the cache is warm again.

It works piece by piece while the cache serves its clients, and is not atomic: data that they
read meanwhile may be cached again, and an interrupted drop leaves the rest in place. Stop the
clients first if the cache must end up empty.`,
		Example: "  arraysim hostcache drop",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			r, err := cachedaemon.NewClient(socket).Drop(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, r, func(w io.Writer, r cachedaemon.Dropped) {
				fmt.Fprintf(w, "%d blocks of %d KB were dropped, %d remain\n", r.Blocks, r.BlockSizeKB, r.Left)
			})
		}),
	}
	c.Flags().StringVar(&socket, "socket", cachedaemon.DefaultSocket, "socket of 'arraysim hostcache serve'")
	return a.jsonFlag(c)
}

func (a *app) cacheMigrate() *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: "migrate", Short: "Warm a cache with what another host's cache of the same LUN holds",
		Long: `migrate lists the blocks of a running cache and has another cache read them, so that a virtual
machine that moves between the two hosts finds its cache warm. It prints the amount of data and
the duration.

The second cache reads from the array; nothing goes between the hosts. If the command is
interrupted, blocks read so far stay cached. Dirty blocks of the first cache are left out. The
second cache invalidates blocks that are written or destaged meanwhile when it is notified
(hostcache serve --watch, by default every second), and refuses to migrate without such
notifications. Quiesce the first cache until the machine has moved. It keeps its contents;
"hostcache drop" empties it.`,
		Example: "  arraysim hostcache migrate --from here.sock --to there.sock",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			r, err := cachedaemon.Migrate(cmd.Context(), cachedaemon.NewClient(from), cachedaemon.NewClient(to))
			if err != nil {
				return err
			}
			return show(a, cmd, r, func(w io.Writer, r cachedaemon.Warmed) {
				fmt.Fprintf(w, "%s in %.3f s; %d of %d blocks are cached\n", size.Bytes(r.Bytes).Human(), r.Seconds, r.Cached, r.Blocks)
			})
		}),
	}
	c.Flags().StringVar(&from, "from", "", "socket of the cache to copy")
	c.Flags().StringVar(&to, "to", "", "socket of the cache to warm")
	for _, name := range []string{"from", "to"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return a.jsonFlag(c)
}
