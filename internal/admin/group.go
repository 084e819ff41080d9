package admin

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// maxGroups is the number of I/O groups that an array may have.
const maxGroups = 16

// ioGroup is one I/O group: an array with its executor, write cache, log and pools, and the
// target by which hosts see its volumes. What is behind exec is used with it held. Groups share
// the process, the portal and their names, and nothing that a command needs: each fills a processor
// of its own. Who needs several executors takes them in the order of the groups.
type ioGroup struct {
	number  int
	log     *slog.Logger
	closing <-chan struct{} // the daemon's

	data    *folder
	exec    *block.Live
	array   *array.Array
	target  *scsi.Target
	exports *exports
	saved   []byte     // the counters that the array keeps; with exec
	keeping sync.Mutex // held, before exec, over a change of what the array keeps until that is durable or taken back
}

// groupPath is the data folder of a group: the first one's is the array's.
func groupPath(data string, number int) string {
	if number == 0 {
		return data
	}
	return filepath.Join(data, fmt.Sprint("iogroup", number))
}

// groupTarget is the iSCSI name of a group's target: the first one's is the portal's.
func groupTarget(name string, number int) string {
	if number == 0 {
		return name
	}
	return fmt.Sprint(name, ".iogroup", number)
}

// longestGroupTarget is what groupTarget adds to a name at most.
const longestGroupTarget = len(".iogroup15")

// openGroup recovers the array of a group and makes its target. What it returns is to be closed, also
// with an error; nil is not.
func (d *daemon) openGroup(number int, data *folder, exec *block.Live) (*ioGroup, error) {
	cache, err := data.cacheSize(d.cfg)
	if err != nil {
		return nil, err
	}
	g := &ioGroup{number: number, log: d.log, closing: d.closing, data: data, exec: exec}
	if g.array, err = data.openArray(exec, cache, d.profile); err != nil {
		return nil, err
	}
	args := []any{"data", data.path, "store", d.cfg.Store, "cache", cache.Human(), "volumes", len(g.array.Volumes())}
	if number > 0 {
		args = append(args, "io_group", number)
	}
	d.log.Info("array is open", args...)
	g.exec.Lock()
	defer g.exec.Unlock()
	g.target = scsi.NewTarget(d.targetOptions(g))
	if g.exports, err = newExports(g.array, g.target); err == nil {
		err = g.restorePolicy()
	}
	if err == nil {
		if g.saved = g.array.Blob(blobCounters); g.saved != nil {
			err = g.target.LoadCounters(g.saved)
		}
	}
	return g, err
}

func (d *daemon) targetOptions(g *ioGroup) scsi.Options {
	r := g.array.Recovery()
	opt := scsi.Options{Name: groupTarget(d.cfg.Portal.Target, g.number), Vendor: productName, Product: "array", Revision: productRevision,
		Exec: g.exec, Random: unguessable, Survived: !r.Fresh && !r.PowerLost}
	setters := foldNames(d.cfg.Portal.SetGroups)
	opt.SetGroups = func(initiator string) bool { return slices.Contains(setters, initiator) }
	if d.profile != nil {
		if e := d.profile.NewEngine(g.exec); e != nil {
			opt.Delay = e.Delay
		}
	}
	for i := range 1 + len(d.cfg.Portal.Further) {
		opt.Ports = append(opt.Ports, scsi.Port{ID: uint16(1 + i), Group: uint16(1 + i), Preferred: d.cfg.Portal.Preferred == 1+i})
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
	g.exports.show()
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
