package admin

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/profile"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/rados"
)

const (
	socketName  = "admin.sock"
	summaryName = "array.json"
	// maxSocketPath is the longest path that fits a Unix socket address on Linux.
	maxSocketPath = 107
)

// summary is what must be known of an array before it can be opened.
type summary struct {
	CacheBytes Size `json:"cache_bytes"`
	// Store is the kind of store where that is not the folder itself.
	Store string `json:"store,omitempty"`
	// ID is the array's where it has several I/O groups; IOGroups is how many of them may have pools. See groupfolder.go.
	ID       string `json:"id,omitempty"`
	IOGroups int    `json:"io_groups,omitempty"`
	// IOGroup is the number of the group that is in this folder.
	IOGroup int `json:"io_group,omitempty"`
}

// folder is the data folder of a daemon, or of a check without one.
type folder struct {
	path   string
	store  block.Store
	lock   *os.File // where the store does not lock the folder itself
	kind   string   // of the store
	memory bool
	bound  bool

	number int    // of the I/O group that it has
	id     string // of the array, where that has several
}

// openFolder locks the data folder of an array and opens its store; kind and aio are those of the configuration.
// notice hears of what the store mends.
func openFolder(x block.Executor, path, kind, aio string, notice func(line string)) (*folder, error) {
	f := &folder{path: path, kind: kind, memory: kind == storeMemory}
	return f, f.open(x, aio, 1, notice)
}

// open locks the folder and opens its store, one of several of the process.
func (f *folder) open(x block.Executor, aio string, stores int, notice func(line string)) error {
	if err := f.checkKind(); err != nil {
		return err
	}
	if f.memory {
		if err := os.MkdirAll(f.path, 0o700); err != nil {
			return fmt.Errorf("data folder: %w; choose another with --data", err)
		}
		if err := f.flock(); err != nil {
			return err
		}
		f.store = store.NewMemory(x, store.MemoryOptions{})
		return nil
	}
	s, err := store.OpenFiles(x, f.path, store.FilesOptions{Stores: stores, NoRing: aio == aioThreads, NeedRing: aio == aioRing || aio == aioDirect, Direct: aio == aioDirect, Notice: notice})
	if err != nil {
		return err
	}
	f.store = s
	return nil
}

func (f *folder) readSummary() (summary, error) {
	var s summary
	b, err := os.ReadFile(filepath.Join(f.path, summaryName))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if errors.Is(err, os.ErrNotExist) || f.memory {
		return summary{}, nil
	}
	if err != nil {
		return s, fmt.Errorf("data folder: %s: %w; write {\"cache_bytes\": N} there, with the size of the write cache", summaryName, err)
	}
	return s, nil
}

// cacheSize chooses the size of the write cache: the array's, if there is one.
func (f *folder) cacheSize(c *Config) (Size, error) {
	s, err := f.readSummary()
	switch {
	case err != nil:
		return 0, err
	case s.CacheBytes == 0 && c.Cache.Size == 0:
		return defaultCacheSize, nil
	case s.CacheBytes == 0:
		return c.Cache.Size, nil
	case c.Cache.Size != 0 && c.Cache.Size != s.CacheBytes && !c.Embedded:
		return 0, c.src.at("cache.size", "the array in %s has a write cache of %s; write size: %s, or choose another data folder", f.path, s.CacheBytes, s.CacheBytes)
	}
	return s.CacheBytes, nil
}

func (f *folder) writeSummary(s summary) error {
	b, _ := json.Marshal(s) // numbers and strings
	if err := replaceFile(filepath.Join(f.path, summaryName), append(b, '\n')); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// What suits real disks, where the firmware of no array is to be shown: 1 MiB of small destages under
// way at an mdisk, and 16 MiB for a sync or a flush.
const (
	diskPages = 256
	diskRound = 4096
)

// openArray recovers the array or makes a new one. A profile gives its mdisks their
// service times and the cache its policy. progress hears how far that is, and ends it with an error.
func (f *folder) openArray(x block.Executor, cache Size, discard bool, prof *profile.Profile, progress func(array.Progress) error) (*array.Array, error) {
	var id [8]byte
	rand.Read(id[:]) // never fails (crypto/rand)
	opt := array.Options{Exec: x, Store: f.store, CacheBytes: int64(cache), UUID: binary.BigEndian.Uint64(id[:]), Discard: discard, Progress: progress}
	if !f.memory {
		opt.Policy.DestagePages, opt.Policy.Round = diskPages, diskRound
	}
	if prof != nil {
		var err error
		if opt.Policy, err = prof.Array(); err != nil {
			return nil, err
		}
		opt.CapPercent = prof.Policy.Caps
		opt.Store = prof.Timed(f.store, x, func(string) string { return "" }, binary.BigEndian.Uint64(id[:]))
	}
	x.Lock()
	a, err := array.Open(opt)
	x.Unlock()
	if err != nil {
		return nil, fmt.Errorf("the array in %s cannot be opened: %w", f.path, err)
	}
	if f.memory {
		return a, nil
	}
	sum, err := f.readSummary()
	if err != nil {
		return nil, err
	}
	if sum.CacheBytes = cache; f.kind == storeRados {
		sum.Store = storeRados
	}
	if f.number > 0 {
		sum.ID, sum.IOGroup = f.id, f.number
	}
	return a, f.writeSummary(sum)
}

// replaceFile replaces a file, or makes it; a full disk or a loss of power leaves the old one or the new one.
func replaceFile(path string, b []byte) error {
	tmp := path + ".new"
	n, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = n.Write(b)
	if err = errors.Join(err, n.Sync(), n.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// serving returns what says whether commands may be carried out now; nil: they always may.
func (f *folder) serving() func() bool {
	if s, ok := f.store.(interface{ Serving() bool }); ok {
		return s.Serving
	}
	return nil
}

// ownership describes who has the array; nil: the store is no such one.
func (f *folder) ownership() *OwnershipStatus {
	s, ok := f.store.(interface{ Ownership() rados.Ownership })
	if !ok {
		return nil
	}
	own := s.Ownership()
	o := &OwnershipStatus{State: StateBusy, Owner: fmt.Sprintf("process %d on this node", os.Getpid()), Epoch: known(own.Epoch), LeaseAge: leaseAge(own.Age)}
	o.troubled(own.Trouble, own.Since)
	if own.From > 0 {
		at := time.Unix(0, own.From).UTC().Truncate(time.Second)
		o.Since = &at
	}
	if own.Serving {
		o.State = StateServing
	}
	return o
}

// known returns an epoch; nil: it is not known.
func known(epoch int64) *int64 {
	if epoch < 0 {
		return nil
	}
	return &epoch
}

// troubled notes what the cluster does not do, and when that began, in nanoseconds since 1970.
func (o *OwnershipStatus) troubled(what string, since int64) {
	if what != "" {
		at := time.Unix(0, since).UTC().Truncate(time.Second)
		o.Trouble, o.TroubleSince = what, &at
	}
}

// leaseAge returns an age of a lease in nanoseconds in seconds; nil: it is not known.
func leaseAge(ns int64) *float64 {
	if ns < 0 {
		return nil
	}
	s := float64(ns) / 1e9
	return &s
}

// opened tells the store that the array is served: a signal stops it from now on, and does not end its start. Where one has
// ended that already the error is rados.ErrCanceled.
func (f *folder) opened() error {
	if s, ok := f.store.(interface{ Opened() error }); ok {
		return s.Opened()
	}
	return nil
}

// stopWaiting has the store wait only for a while from now on for what it may never get, such as room.
func (f *folder) stopWaiting() {
	if s, ok := f.store.(interface{ StopWaiting() }); ok {
		s.StopWaiting()
	}
}

// handTo has close leave the array to another node.
func (f *folder) handTo(node string) {
	if s, ok := f.store.(interface{ HandTo(string) }); ok {
		s.HandTo(node)
	}
}

// close releases the store and the lock.
func (f *folder) close() error {
	err := f.store.Close()
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// listen opens the admin socket, for this user alone. The folder is locked, so
// that a socket that is there already is a dead daemon's.
func (f *folder) listen() (net.Listener, error) {
	// It gets its mode in a folder that nobody else can enter, then its place.
	tmp, err := os.MkdirTemp(f.path, ".admin-")
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	defer os.RemoveAll(tmp)
	var l *net.UnixListener
	err = withSocketPath(filepath.Join(tmp, socketName), func(path string) error {
		var err error
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err = os.Chmod(filepath.Join(tmp, socketName), 0o600); err == nil {
		err = os.Rename(filepath.Join(tmp, socketName), filepath.Join(f.path, socketName))
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("admin socket: %w", err)
	}
	f.bound = true
	return l, nil
}

func (f *folder) removeSocket() {
	if f.bound {
		os.Remove(filepath.Join(f.path, socketName))
	}
}

// withSocketPath calls fn with a name of path that fits a socket address.
func withSocketPath(path string, fn func(string) error) error {
	if len(path) <= maxSocketPath {
		return fn(path)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}
