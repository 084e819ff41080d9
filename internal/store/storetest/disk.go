// Package storetest has a simulated file system whose power can be cut.
package storetest

import (
	"errors"
	"hash/maphash"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/arraysim/arraysim/internal/store"
)

const (
	sector = 512
	page   = 4096
)

// Disk is a file system in memory. Only what was synced is sure to survive a cut
// of its power; of the rest any subset does, in any order, torn at sectors of 512 bytes:
// of a sector that was written several times since its last sync, any of the versions.
// Names, those of folders too, survive when their folder was synced; of later changes the first few do, in order, as
// the journals of ext4 and XFS keep them.
//
// What an image looks like is a function of the seed and of what was done to each
// file. It is safe for concurrent use, as Pebble needs.
type Disk struct {
	mu      sync.Mutex
	seed    uint64
	boot    uint64
	names   map[string]*inode // as programs see it
	stable  map[string]*inode // what survives for sure
	pending []change          // of names, since their folder's sync
	dirs    map[string]bool   // as programs see them
	kept    map[string]bool   // folders that survive for sure
	nextID  uint64
	locks   map[string]bool

	syncs         int // of all files: points at which the power can be cut, or the process killed
	cutAt, killIn int
	// Syncs that failed: points at which the process can be killed.
	failed, diesAt int
	// Writes of all files: points at which the process can be killed.
	writes, killAt int
	image          *Disk

	// Fault, when set, is asked before every operation on data: a non-nil error fails it, and n
	// less than the length makes it short.
	fault func(op Op, path string, n int) (int, error)
	// free is the number of pages that can still be allocated; negative: no limit.
	free int
	// nameless: nobody can tell one start of the machine from another.
	nameless bool
}

// Op is an operation that a fault can hit.
type Op int

// Operations.
const (
	Read Op = iota
	Write
	Sync
)

// change is one change of names in a folder that was not synced yet.
type change struct {
	dir      string
	from, to string // to == "": removed; from == "": made
	node     *inode // nil: a folder, which may have got another name
}

// inode is a file. Pages are never changed in place, so that images share them.
type inode struct {
	id      uint64
	path    string // its last name
	size    int64
	synced  int64            // size at the last sync
	pages   map[int64][]byte // as programs see them
	old     map[int64][]byte // what the medium has of pages written since the last sync; nil: a hole
	lost    map[int64][]byte // what the medium has of pages whose sync failed
	rnd     *rand.Rand       // what was written back early
	mapped  []byte           // the NVRAM: programs write here behind the file system's back
	cached  []byte           // what the kernel has of it while nobody maps it, nil: what the medium has
	medium  []byte           // what the medium has of it for sure
	differs differences      // where seen and medium may not be the same
	// clean is what pages of it held when writing them failed. The kernel takes these for clean: they
	// go nowhere until somebody writes to them again.
	clean map[int][]byte
	// failed: the kernel could not write pages that nobody has asked it for yet. The next sync says so.
	failed bool
}

// seen returns the NVRAM as programs see it.
func (n *inode) seen() []byte {
	switch {
	case n.mapped != nil:
		return n.mapped
	case n.cached != nil:
		return n.cached
	}
	return n.medium
}

// isClean tells whether the kernel takes a page of the NVRAM for clean that the medium does not have.
func (n *inode) isClean(i int) bool {
	was, ok := n.clean[i]
	return ok && string(was) == string(n.seen()[i*page:i*page+len(was)])
}

// flush has the medium take bytes [off, off+k) of the NVRAM. When it fails, some of the pages got there, and the
// kernel takes all of them for clean (msync and fsync on Linux).
func (n *inode) flush(off, k int, fails bool) {
	seen := n.seen()
	for i := range n.differs.in(n, off, off+k) {
		now, to := seen[i*page:min(i*page+page, len(seen))], n.medium[i*page:min(i*page+page, len(seen))]
		switch {
		case string(now) == string(to):
			n.differs.not(i)
		case n.isClean(i):
		case fails && n.rnd.IntN(4) > 0:
			n.clean[i] = slices.Clone(now)
		default:
			delete(n.clean, i)
			n.differs.not(i)
			copy(to, now)
		}
	}
}

// NewDisk returns an empty file system.
func NewDisk(seed uint64) *Disk {
	return &Disk{seed: seed, boot: 1, names: map[string]*inode{}, stable: map[string]*inode{}, dirs: map[string]bool{"/": true}, kept: map[string]bool{"/": true},
		locks: map[string]bool{}, cutAt: -1, killIn: -1, diesAt: -1, killAt: -1, free: -1}
}

var _ store.FS = (*Disk)(nil)

// SetFault makes operations fail; nil ends that.
func (d *Disk) SetFault(fn func(op Op, path string, n int) (int, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fn
}

// SetFree sets how many bytes can still be allocated; negative is no limit.
func (d *Disk) SetFree(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = max(-1, bytes)
	if bytes > 0 {
		d.free = bytes / page
	}
}

// HideBoot makes Boot return 0 from now on, in images as well: it is not known.
func (d *Disk) HideBoot() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nameless = true
}

// WriteBack has the medium take a few sectors of the NVRAM as they are now, as a
// kernel does whenever it likes.
func (d *Disk) WriteBack(rnd *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, path := range sortedNames(d.names) {
		n := d.names[path]
		if n.mapped == nil {
			continue
		}
		at := rnd.IntN(len(n.mapped)/sector) * sector
		end := min(len(n.mapped), at+rnd.IntN(64)*page)
		for ; at < end; at += sector {
			if rnd.IntN(2) == 0 && !n.isClean(at/page) {
				copy(n.medium[at:at+sector], n.mapped[at:])
			}
		}
	}
}

// FailWriteBack has the kernel fail to write some pages of a file whose path has the prefix, by itself, as it does whenever
// it likes. It takes them for clean, and drops some. The next sync of the file says so.
func (d *Disk) FailWriteBack(rnd *rand.Rand, prefix string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []*inode
	for _, path := range sortedNames(d.names) {
		if n := d.names[path]; strings.HasPrefix(path, prefix) && len(n.old) > 0 && n.medium == nil {
			files = append(files, n)
		}
	}
	if len(files) == 0 {
		return
	}
	n := files[rnd.IntN(len(files))]
	for _, i := range slices.Sorted(maps.Keys(n.old)) {
		if rnd.IntN(2) == 0 {
			n.lost[i] = n.old[i]
			delete(n.old, i)
		}
	}
	n.failed = true
	n.drop()
}

// Mapped returns the memory of the NVRAM at a path, as the program sees it that maps it; nil: none does.
func (d *Disk) Mapped(path string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.names[clean(path)]; n != nil {
		return n.mapped
	}
	return nil
}

func sortedNames(m map[string]*inode) []string {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}

// Flip flips one random bit of a file whose path has the prefix, of what it has
// allocated, and says where. Nothing must have the file system open.
func (d *Disk) Flip(rnd *rand.Rand, prefix string) (path string, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var files []string
	for _, path := range sortedNames(d.names) {
		if n := d.names[path]; strings.HasPrefix(path, prefix) && (len(n.pages) > 0 || n.medium != nil) {
			files = append(files, path)
		}
	}
	path = files[rnd.IntN(len(files))]
	n := d.names[path]
	bit := byte(1) << rnd.IntN(8)
	if n.medium != nil {
		off = rnd.Int64N(int64(len(n.medium)))
		n.flip(off, bit)
		return path, off
	}
	pages := make([]int64, 0, len(n.pages))
	for i := range n.pages {
		pages = append(pages, i)
	}
	slices.Sort(pages)
	i := pages[rnd.IntN(len(pages))]
	off = rnd.Int64N(min(page, max(1, n.size-i*page)))
	p := slices.Clone(n.pages[i])
	p[off] ^= bit
	n.pages[i] = p
	return path, i*page + off
}

// flip flips a bit of the NVRAM, on the medium and in the kernel's memory.
func (n *inode) flip(off int64, bit byte) {
	n.medium[off] ^= bit
	if n.cached != nil {
		n.cached[off] ^= bit
	}
}

// FlipAt flips a bit of a byte of a file.
func (d *Disk) FlipAt(path string, off int64, bit int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[path]
	if n.medium != nil {
		n.flip(off, 1<<bit)
		return
	}
	p := make([]byte, page)
	copy(p, n.pages[off/page])
	p[off%page] ^= 1 << bit
	n.pages[off/page] = p
}

// Hash is a digest of all files: equal disks have equal ones.
func (d *Disk) Hash(seed maphash.Seed) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var h maphash.Hash
	h.SetSeed(seed)
	for _, path := range sortedNames(d.names) {
		n := d.names[path]
		h.WriteString(path)
		h.Write(n.seen())
		for i := int64(0); i*page < n.size && n.medium == nil; i++ {
			if p := n.pages[i]; p != nil && strings.Trim(string(p), "\x00") != "" {
				h.WriteByte(byte(i))
				h.Write(p)
			}
		}
	}
	return h.Sum64()
}

// Resolve returns the path: there are no links.
func (d *Disk) Resolve(path string) (string, error) { return path, nil }

// Instant is false: everything waits for a disk here.
func (d *Disk) Instant(string) bool { return false }

// Boot counts the power cuts.
func (d *Disk) Boot() uint64 {
	if d.nameless {
		return 0
	}
	return d.boot
}

func notExist(op, path string) error {
	return &os.PathError{Op: op, Path: path, Err: syscall.ENOENT}
}

func clean(path string) string { return filepath.Clean("/" + path) }

type lockFile struct {
	d    *Disk
	path string
}

func (l lockFile) Close() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	delete(l.d.locks, l.path)
	return nil
}

// Lock locks a name.
func (d *Disk) Lock(path string) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	path = clean(path)
	if d.locks[path] {
		return nil, errors.New("storetest: " + path + " is in use by another")
	}
	d.locks[path] = true
	return lockFile{d, path}, nil
}
