package storetest

import (
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/vfs"

	"github.com/arraysim/arraysim/internal/store"
)

func (d *Disk) create(p string) *inode {
	d.nextID++
	n := &inode{id: d.nextID, path: p, pages: map[int64][]byte{}, old: map[int64][]byte{}, lost: map[int64][]byte{}, clean: map[int][]byte{}, rnd: rand.New(rand.NewPCG(d.seed, d.nextID))}
	d.names[p] = n
	d.pending = append(d.pending, change{dir: path.Dir(p), to: p, node: n})
	return n
}

// OpenData opens or creates a file.
func (d *Disk) OpenData(p string) (store.DataFile, error) { return d.open(p, true) }

func (d *Disk) open(p string, make bool) (*handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	n := d.names[p]
	if n == nil {
		if !make || !d.dirs[path.Dir(p)] {
			return nil, notExist("open", p)
		}
		n = d.create(p)
	}
	return &handle{d: d, path: p, n: n}, nil
}

// Create makes a new file in the place of any that is there.
func (d *Disk) Create(p string) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	return &handle{d: d, path: p, n: d.create(p)}, nil
}

// Open opens a file or a folder.
func (d *Disk) Open(p string, _ ...vfs.OpenOption) (vfs.File, error) {
	if h, err := d.OpenDir(p); err == nil {
		return h, nil
	}
	h, err := d.open(p, false)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// OpenReadWrite opens or creates a file.
func (d *Disk) OpenReadWrite(p string, _ ...vfs.OpenOption) (vfs.File, error) {
	return d.open(p, true)
}

// OpenDir opens a folder for a sync.
func (d *Disk) OpenDir(p string) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	if !d.dirs[p] {
		return nil, notExist("open", p)
	}
	return &handle{d: d, path: p}, nil
}

// Link gives a file a second name.
func (d *Disk) Link(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to = clean(from), clean(to)
	n := d.names[from]
	if n == nil {
		return notExist("link", from)
	}
	d.names[to] = n
	d.pending = append(d.pending, change{dir: path.Dir(to), to: to, node: n})
	return nil
}

// Remove removes a file.
func (d *Disk) Remove(p string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	n := d.names[p]
	if n == nil {
		return notExist("remove", p)
	}
	delete(d.names, p)
	d.pending = append(d.pending, change{dir: path.Dir(p), from: p, node: n})
	return nil
}

// RemoveAll removes a file, or a folder and what is in it.
func (d *Disk) RemoveAll(p string) error {
	p = clean(p)
	d.mu.Lock()
	names := sortedNames(d.names)
	d.mu.Unlock()
	for _, name := range names {
		if within(name, p) {
			d.Remove(name)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	folders := slices.Sorted(maps.Keys(d.dirs))
	for _, dir := range slices.Backward(folders) { // what is in a folder before the folder
		if within(dir, p) {
			delete(d.dirs, dir)
			d.pending = append(d.pending, change{dir: path.Dir(dir), from: dir})
		}
	}
	return nil
}

// within reports whether a path is p, or below it.
func within(name, p string) bool { return name == p || strings.HasPrefix(name, p+"/") }

// Rename renames a file, or a folder, to which no folder gives way that has something in it. It is atomic.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	from, to = clean(from), clean(to)
	if d.dirs[from] {
		return d.renameFolder(from, to)
	}
	n := d.names[from]
	if n == nil {
		return notExist("rename", from)
	}
	delete(d.names, from)
	d.names[to], n.path = n, to
	d.pending = append(d.pending, change{dir: path.Dir(to), from: from, to: to, node: n})
	return nil
}

func (d *Disk) renameFolder(from, to string) error {
	for name := range d.names {
		if within(name, to) {
			return &os.PathError{Op: "rename", Path: to, Err: syscall.ENOTEMPTY}
		}
	}
	ch := change{dir: path.Dir(to), from: from, to: to}
	ch.keep(d.names, d.dirs)
	for name, n := range d.names {
		if within(name, to) {
			n.path = name
		}
	}
	d.pending = append(d.pending, ch)
	return nil
}

// moved gives what is in a folder, or the folder, its name behind that of the folder has changed.
func moved[V any](m map[string]V, from, to string) {
	for name, v := range maps.Clone(m) {
		if within(name, from) {
			delete(m, name)
			m[to+name[len(from):]] = v
		}
	}
}

// ReuseForWrite does not reuse.
func (d *Disk) ReuseForWrite(from, to string) (vfs.File, error) {
	if err := d.Remove(from); err != nil {
		return nil, err
	}
	return d.Create(to)
}

// MkdirAll makes a folder, and those above it.
func (d *Disk) MkdirAll(p string, _ os.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mkdir(clean(p))
	return nil
}

func (d *Disk) mkdir(p string) {
	if !d.dirs[p] {
		d.mkdir(path.Dir(p))
		d.dirs[p] = true
		d.pending = append(d.pending, change{dir: path.Dir(p), to: p})
	}
}

// List lists a folder.
func (d *Disk) List(p string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	if !d.dirs[p] {
		return nil, notExist("open", p)
	}
	var out []string
	for name := range d.names {
		if path.Dir(name) == p {
			out = append(out, path.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// Stat describes a name.
func (d *Disk) Stat(p string) (os.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = clean(p)
	if n := d.names[p]; n != nil {
		return info{path.Base(p), n.size, false}, nil
	}
	if d.dirs[p] {
		return info{path.Base(p), 0, true}, nil
	}
	return nil, notExist("stat", p)
}

// PathBase, PathJoin and PathDir work on names.
func (d *Disk) PathBase(p string) string       { return path.Base(p) }
func (d *Disk) PathJoin(elem ...string) string { return path.Join(elem...) }
func (d *Disk) PathDir(p string) string        { return path.Dir(p) }

// GetDiskUsage knows no limit.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 40}, nil
}

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) IsDir() bool        { return i.dir }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Sys() any           { return nil }
func (i info) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o700
	}
	return 0o600
}
