package admin

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// maxGroups is the number of I/O groups that an array may have.
const maxGroups = 16

// groupShift is where the number of its I/O group stands in a volume's number, as clients are told it: an array numbers its
// volumes below, and numbers are not to come twice.
const groupShift = 24

// volumeID is the number of a volume in all of the array.
func (g *ioGroup) volumeID(v *array.Volume) uint32 { return uint32(g.number)<<groupShift | v.ID() }

// poolID is the number of a pool in all of the array; no other pool ever gets it.
func (g *ioGroup) poolID(p *array.Pool) uint32 { return uint32(g.number)<<groupShift | uint32(p.ID()) }

// ioGroup is one I/O group: an array with its executor, write cache, log and pools, and the
// target by which hosts see its volumes. What is behind exec is used with it held. Groups share
// the process, the portal and their names, and nothing that a command needs: each fills a processor
// of its own. Who needs several executors takes them in the order of the groups.
type ioGroup struct {
	number  int
	log     *slog.Logger
	closing <-chan struct{} // the daemon's

	data    *folder
	cache   Size // of the write cache; one for all groups
	exec    *block.Live
	array   *array.Array
	target  *scsi.Target
	exports *exports
	saved   []byte     // the counters that the array keeps; with exec
	keeping sync.Mutex // held, before exec, over a change of what the array keeps until that is durable or taken back
}

// openGroup recovers the array of a group and makes its target. What it returns is to be closed, also
// with an error; nil is not.
func (d *daemon) openGroup(ctx context.Context, data *folder, exec *block.Live) (*ioGroup, error) {
	var cache Size
	var policy []byte // what that of all groups was changed to: the first one's is the truth
	var err error
	if data.number == 0 {
		cache, err = data.cacheSize(d.cfg)
	} else {
		first := d.groups[0]
		first.exec.Lock()
		cache, policy = first.cache, first.array.Blob(blobPolicy)
		first.exec.Unlock()
	}
	if err != nil {
		return nil, err
	}
	g := &ioGroup{number: data.number, log: d.log, closing: d.closing, data: data, cache: cache, exec: exec}
	if g.array, err = data.openArray(exec, cache, *d.cfg.Discard, d.profile, d.starts(ctx, data)); err != nil {
		return nil, err
	}
	args := []any{"data", data.path, "store", d.cfg.Store, "cache", cache.Human(), "volumes", len(g.array.Volumes())}
	args = append(args, startArgs(g.array.Recovery())...)
	if g.number > 0 {
		args = append(args, "io_group", g.number)
	}
	d.log.Info("array is open", args...)
	if why := g.array.Recovery().Derived; why != "" {
		d.log.Warn("the stored account of space is not used: it was derived from all map pages", "data", data.path, "reason", why)
	}
	if err = g.prepare(d.targetOptions(g)); err == nil && g.number > 0 {
		err = g.await(func(done func(error)) {
			if bytes.Equal(g.array.Blob(blobPolicy), policy) {
				done(nil)
				return
			}
			g.array.SetBlob(blobPolicy, policy, done)
		})
	}
	if err == nil {
		g.exec.Lock()
		err = g.restorePolicy()
		g.exec.Unlock()
	}
	return g, err
}

// startArgs says in the log what a start has read, and how long its parts took.
func startArgs(r array.Recovery) []any {
	ms := func(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }
	return []any{"map_pages", r.MapPages, "map_pages_read", r.PagesRead, "records", r.Records, "took", ms(r.Took.All()), "maps", ms(r.Took.Maps), "replay", ms(r.Took.Replay),
		"counts", ms(r.Took.Counts), "pages", ms(r.Took.Pages)}
}

// prepare makes the target and what shows volumes by it, from what the array keeps.
func (g *ioGroup) prepare(opt scsi.Options) (err error) {
	g.exec.Lock()
	defer g.exec.Unlock()
	r := g.array.Recovery()
	opt.Survived = !r.Fresh && !r.PowerLost
	g.target = scsi.NewTarget(opt)
	if g.exports, err = newExports(g.array, g.target); err != nil {
		return err
	}
	if g.saved = g.array.Blob(blobCounters); g.saved != nil {
		err = g.target.LoadCounters(g.saved)
	}
	return err
}

func (d *daemon) targetOptions(g *ioGroup) scsi.Options {
	opt := scsi.Options{Name: groupTarget(d.cfg.Portal.Target, g.number), Vendor: productName, Product: "array", Revision: productRevision,
		Exec: g.exec, Random: unguessable, Serving: g.data.serving()}
	setters := foldNames(d.cfg.Portal.SetGroups)
	opt.SetGroups = func(initiator string) bool { return slices.Contains(setters, initiator) }
	if d.profile != nil {
		if e := d.profile.NewEngine(g.exec); e != nil {
			opt.Delay = e.Delay
		}
	}
	for i := range 1 + len(d.cfg.Portal.Further) {
		id := uint16(d.cfg.firstPort() + i)
		opt.Ports = append(opt.Ports, scsi.Port{ID: id, Group: id, Preferred: d.cfg.Portal.Preferred == 1+i, Transits: d.cfg.Node != nil})
	}
	return opt
}

// show makes units of the group's volumes and shows them to hosts.
func (g *ioGroup) show() {
	g.exec.Lock()
	defer g.exec.Unlock()
	for _, v := range g.array.Volumes() {
		g.exports.open(v)
	}
	g.exports.show(nil)
	g.exports.dropStates(g.log)
	g.startScrub()
}

// await calls fn on the executor and waits for its callback.
func (g *ioGroup) await(fn func(done func(error))) error { return await(g.exec, fn) }

// saveCounters makes what the host layer has counted durable.
func (g *ioGroup) saveCounters() error {
	return g.await(func(done func(error)) {
		b := g.target.SaveCounters()
		if bytes.Equal(b, g.saved) {
			done(nil)
			return
		}
		g.array.SetBlob(blobCounters, b, func(err error) {
			if err == nil {
				g.saved = b
			}
			done(err)
		})
	})
}

// dirty returns the bytes that are not destaged yet.
func (g *ioGroup) dirty() Size {
	g.exec.Lock()
	defer g.exec.Unlock()
	return Size(g.array.Dirty())
}

// withdraw ends what waits for room, for hosts and for the daemon's own changes.
func (g *ioGroup) withdraw() {
	g.exec.Lock()
	defer g.exec.Unlock()
	g.array.StopWaiting()
}

// revoke ends what copies have a claim to.
func (g *ioGroup) revoke() {
	if g.target == nil {
		return
	}
	g.exec.Lock()
	defer g.exec.Unlock()
	g.target.RevokeTokens()
}

// close ends the executor of an array that has stopped, and releases its folder.
func (g *ioGroup) close() error {
	g.exec.Stop() // a timer of the array must not find its NVRAM gone
	return g.data.close()
}
