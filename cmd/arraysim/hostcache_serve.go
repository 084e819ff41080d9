package main

import (
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/cachedaemon"
	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/size"
)

func (a *app) hostcacheServe() *cobra.Command {
	cfg := cachedaemon.Defaults()
	var debug bool
	c := &cobra.Command{
		Use: "serve", Short: "Serve a LUN through a cache on flash",
		Long: `serve puts a cache in front of a LUN and offers the result on an iSCSI portal, with
the identity of the LUN below. COPY, WRITE SAME, UNMAP and COMPARE AND WRITE are
passed through; the array executes them, and the cache follows.

With --tcmu the LUN becomes a disk of this host: targetcli makes a backstore of
/backstores/user:hostcache with cfgstring=0 and the LUN's size, and tcm_loop presents it.

The backend is ` + iscsi.Form + `, or a
local file or block device. The flash is a file or block device. Dirty data on it
survives the process; the next start with the same flash recovers it.

SIGINT or SIGTERM stops it: it destages dirty data, and ends with an error if the
LUN takes none for 75 s. A second signal stops it immediately: dirty data stays
on the flash.

A peer is a LUN of another arraysim that is at least as big as the flash. When
this host is lost, start serve on the peer's side with that LUN as --flash and
--take-over KEY, the lost host's --key: it is fenced by PERSISTENT RESERVE, and
what it had acknowledged is destaged.

` + secretHelp,
		Example: "  arraysim hostcache serve --backend iscsi://127.0.0.1/iqn.2026-01.io.arraysim:array/0 --flash /var/tmp/flash --flash-size 1GiB --policy write_back\n" +
			"  arraysim hostcache serve --backend 'iscsi://bob@array/iqn.2026-01.io.arraysim:array/0?secret_file=/etc/arraysim/bob' --flash /dev/nvme0n1\n" +
			"  arraysim hostcache policy stats",
		Args: cobra.NoArgs,
		RunE: a.do(func(cmd *cobra.Command, _ []string) error {
			warnOfSecret("--backend", cfg.Backend)
			warnOfSecret("--flash", cfg.Flash)
			for _, p := range cfg.Peers {
				_, address, _ := strings.Cut(p, "=")
				warnOfSecret("--peer", address)
			}
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			ctx, hurry := signals()
			return cachedaemon.Serve(ctx, cfg, cachedaemon.Environment{
				Out:   admin.PrintableWriter(os.Stdout), // it serves on, whoever reads this
				Log:   slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
				Hurry: hurry,
			})
		}),
	}
	fl := c.Flags()
	fl.StringVar(&cfg.Backend, "backend", "", "the LUN: "+iscsi.Form+", a file or a block device")
	fl.StringVar(&cfg.Flash, "flash", "", "the flash: a file, a block device, or iscsi://... with --take-over")
	fl.Var((*size.Bytes)(&cfg.FlashSize), "flash-size", "create the flash file with this size, such as 4GiB")
	fl.StringVar(&cfg.Policy, "policy", cfg.Policy, "off, write_through, write_back, write_back+PEERS or write_back+PEERS+EXTERNAL")
	fl.Var((*size.Bytes)(&cfg.BlockSize), "block-size", "size of a cache block, 4KiB to 1MiB")
	fl.StringVar(&cfg.Eviction, "eviction", cfg.Eviction, "eviction policy, as in 'arraysim replay --policy'; auto chooses while it runs")
	fl.Var((*size.Bytes)(&cfg.Area), "area", "limit of dirty data (default: 7/8 of the cache)")
	fl.Int64Var(&cfg.Threshold, "threshold", cfg.Threshold, "fill level of the area, in thousandths, above which writes are slowed down")
	fl.IntVar(&cfg.DestageSlots, "destage-slots", cfg.DestageSlots, "destages in flight")
	fl.StringArrayVar(&cfg.Peers, "peer", nil, "a peer's flash: NAME=iscsi://..., or NAME@DOMAIN=iscsi://... in another fault domain; repeat for each peer")
	fl.StringVar(&cfg.FlashSync, "flash-sync", cfg.FlashSync, `"always" waits for the flash's own cache before an acknowledgement, "flush" only on a flush or FUA`)
	fl.DurationVar(&cfg.Watch, "watch", cfg.Watch, "how often to ask an arraysim what other hosts have changed on the LUN (0: never)")
	fl.StringVar(&cfg.Witness, "witness", "", "file that says which flash is the newest (default: the reservation key at the LUN if there is one, else a file of this host, by LUN)")
	fl.BoolVar(&cfg.Format, "format", false, "discard everything on the flash, including dirty data")
	fl.StringVar(&cfg.Listen, "listen", cfg.Listen, "address of the iSCSI portal (port 0: any that is free)")
	fl.BoolVar(&cfg.TCMU, "tcmu", false, "serve the kernel instead of the portal, as tcmu-runner does (root; targetcli makes the disk, /backstores/user:hostcache)")
	fl.StringVar(&cfg.Target, "target", cfg.Target, "name of the iSCSI target")
	fl.StringVar(&cfg.Initiator, "initiator", "", "initiator name for backend and peers (default: iqn.2026-01.io.arraysim:hostcache. and a hash of this machine's identity)")
	fl.DurationVar(&cfg.PeerTimeout, "peer-timeout", cfg.PeerTimeout, "how long a write waits for a peer that does not answer; then the cache continues without it")
	fl.StringVar(&cfg.Socket, "socket", cfg.Socket, "where 'arraysim hostcache policy' finds this daemon")
	fl.Uint64Var(&cfg.Key, "key", 0, "reservation key of this host, 1 to 0xffffff: reserves the LUN for registrants, so that the host can be fenced (0: none, and with --peer one derived from the initiator name)")
	fl.Uint64Var(&cfg.TakeOver, "take-over", 0, "reservation key of a lost host whose dirty data is on --flash")
	fl.BoolVar(&debug, "debug", false, "also log debug messages")
	for _, name := range []string{"backend", "flash"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return c
}
