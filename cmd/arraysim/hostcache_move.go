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
		Use: "drop", Short: "Empty a running cache: forget everything that is clean",
		Long: `drop forgets what a cache has of its LUN, except what is dirty: as after a cold
restart, a resume, a snapshot that is reverted, or a move without the cache. It prints
how many blocks that were. Reads come from the array until the cache is warm again.

It goes piece by piece while the cache serves its clients, and is not atomic: what they read
meanwhile may be cached again, and a command that is interrupted leaves what it had not come to.
For a cache that holds nothing of before, let its clients stop first.`,
		Example: "  arraysim hostcache drop",
		Args:    cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			r, err := cachedaemon.NewClient(socket).Drop(cmd.Context())
			if err != nil {
				return err
			}
			return show(a, cmd, r, func(w io.Writer, r cachedaemon.Dropped) {
				fmt.Fprintf(w, "%d blocks of %d KB are dropped, %d stay\n", r.Blocks, r.BlockSizeKB, r.Left)
			})
		}),
	}
	c.Flags().StringVar(&socket, "socket", cachedaemon.DefaultSocket, "socket of 'arraysim hostcache serve'")
	return a.jsonFlag(c)
}

func (a *app) cacheMigrate() *cobra.Command {
	var from, to string
	c := &cobra.Command{
		Use: "migrate", Short: "Make a cache hold what another host's cache of the same LUN holds",
		Long: `migrate asks a running cache what it holds, and makes another one read just that,
so that a virtual machine that moves between their hosts finds its cache warm. It
prints how much that was and how long it took.

The data comes from the array, and not over a link between the hosts. It goes page by page,
and ends with this command: what was read by then stays cached. What the first cache has not
destaged stays out. What is written or destaged behind the copy the second cache forgets when
it hears of it (hostcache serve --watch, a second by default); one that does not hear of it
refuses. So quiesce the first cache until the machine has moved. The first one keeps its
contents; empty it by "hostcache drop".`,
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
	c.Flags().StringVar(&from, "from", "", "socket of the cache whose contents are wanted")
	c.Flags().StringVar(&to, "to", "", "socket of the cache that reads them")
	for _, name := range []string{"from", "to"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return a.jsonFlag(c)
}
