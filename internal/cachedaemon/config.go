// Package cachedaemon serves one LUN through a cache on flash (packages hostcache and tier): it opens
// the LUN, the flash and the peers, decides who may write, offers the result on an iSCSI portal or
// to the kernel's TCMU, and answers an API on a unix socket, of which Client is the other side. It is
// for the host cache what package admin is for the array. docs/hostcache.md describes what it serves.
package cachedaemon

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// What a configuration says that is given nothing.
const (
	DefaultSocket = "hostcache.sock"
	DefaultTarget = "iqn.2026-01.io.arraysim:hostcache"
	DefaultListen = "127.0.0.1:3261"
)

// Config is what a cached LUN is made of. Messages name its fields as the flags of
// `arraysim hostcache serve`, which say what each of them is for.
type Config struct {
	// Backend and Flash are files, block devices or iSCSI addresses; Peers are NAME[@DOMAIN]=address.
	Backend, Flash string
	Peers          []string
	// FlashSize makes the file of the flash if it is above 0. This and the next two are bytes.
	FlashSize, BlockSize uint64
	// Area is the most dirty data; 0 leaves it to the tier.
	Area uint64
	// Policy is the text of a tier.Policy, Eviction the name of a policy of the index.
	Policy, Eviction string
	// Threshold is in thousandths of the area.
	Threshold    int64
	DestageSlots int
	// FlashSync is always or flush.
	FlashSync string
	// Format gives up what is on the flash.
	Format bool
	// Listen is the portal's address, and Target its name; TCMU serves the kernel instead.
	Listen, Target string
	TCMU           bool
	// Initiator is the name towards backend and peers; "" makes one of this machine's identity.
	Initiator   string
	PeerTimeout time.Duration
	// Key is this host's reservation key, TakeOver that of a lost host; 0 is none.
	Key, TakeOver uint64
	// Watch is the time between two questions to the array about what others have changed; 0 asks none.
	Watch time.Duration
	// Witness is the file that says which flash is the newest, Socket that of the API.
	Witness, Socket string
}

// Defaults is a configuration that lacks Backend and Flash alone.
func Defaults() Config {
	return Config{
		BlockSize: 4 << 10, Policy: "write_through", Eviction: "s3-fifo", Threshold: 700, DestageSlots: tier.DefaultDestageSlots,
		FlashSync: "always", Listen: DefaultListen, Target: DefaultTarget, PeerTimeout: 10 * time.Second, Watch: time.Second, Socket: DefaultSocket,
	}
}

// Environment is what a daemon has of the process that it runs in.
type Environment struct {
	Out io.Writer // gets one line when the LUN can be used
	Log *slog.Logger
	// Hurry is closed when a stop shall leave dirty data on the flash.
	Hurry <-chan struct{}
}

// Serve serves a cached LUN until ctx ends, and then destages what is dirty. It returns what kept it from
// that; what is dirty then stays on the flash, and the next start with it goes on.
func Serve(ctx context.Context, cfg Config, env Environment) error {
	d := &daemon{cfg: cfg, out: env.Out, log: env.Log, hurry: env.Hurry, exec: block.NewLive()}
	return d.run(ctx)
}
