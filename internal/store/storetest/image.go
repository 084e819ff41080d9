package storetest

import (
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// What a loss of power or the death of the process leaves: images of a disk, which are disks.

// CutAtSync cuts the power just before the n-th sync from now on takes effect. The
// file system goes on for its program, which does not know that it is dead; Image
// returns what is left.
func (d *Disk) CutAtSync(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image, d.cutAt = nil, d.syncs+n
}

// KillAtSync kills the process just before the n-th sync from now on takes effect. Image returns what is left.
func (d *Disk) KillAtSync(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image, d.killIn = nil, d.syncs+n
}

// KillAtFailedSync kills the process when the n-th sync from now on that fails has done so, before anybody
// hears of it. Image returns what is left.
func (d *Disk) KillAtFailedSync(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image, d.diesAt = nil, d.failed+n
}

// KillAtWrite kills the process inside the n-th write from now on, of which any first part
// is in the file then. Image returns what is left.
func (d *Disk) KillAtWrite(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.image, d.killAt = nil, d.writes+n
}

// Image returns what a cut or a kill left, nil if there was none.
func (d *Disk) Image() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.image
}

// Cut cuts the power now, if it was not cut, and returns what is left.
func (d *Disk) Cut() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.image == nil {
		d.image = d.cut()
	}
	return d.image
}

// Forget drops all that the file system of a dead program has: what still refers to it does nothing with it. An open
// that fails leaves goroutines of Pebble behind, and these a chain of all images that followed.
func (d *Disk) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names, d.stable, d.pending, d.image = map[string]*inode{}, map[string]*inode{}, nil, nil
}

// Kill returns what the death of the process alone leaves: everything.
func (d *Disk) Kill() *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kill()
}

// KillNow kills the process, if it lives: Image returns what is left.
func (d *Disk) KillNow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.image == nil {
		d.image = d.kill()
	}
}

// kill makes an image of all that the kernel has: what was not synced may still be lost by a cut.
func (d *Disk) kill() *Disk {
	c := NewDisk(mix(d.seed + 1))
	c.boot, c.nameless, c.free, c.dirs, c.kept, c.nextID = d.boot, d.nameless, d.free, maps.Clone(d.dirs), maps.Clone(d.kept), d.nextID
	done := map[*inode]*inode{}
	of := func(n *inode) *inode {
		if done[n] == nil {
			done[n] = n.kill(rand.New(rand.NewPCG(c.seed, n.id)))
		}
		return done[n]
	}
	for path, n := range d.names {
		c.names[path] = of(n)
	}
	for path, n := range d.stable {
		c.stable[path] = of(n)
	}
	for _, ch := range d.pending {
		if ch.node != nil {
			ch.node = of(ch.node)
		}
		c.pending = append(c.pending, ch)
	}
	return c
}

// cut makes an image. How much of the rest survives is drawn, too: nothing, few,
// half, most, all.
func (d *Disk) cut() *Disk {
	rnd := rand.New(rand.NewPCG(d.seed, uint64(d.syncs)))
	percent := []int{0, 5, 50, 50, 95, 100}[rnd.IntN(6)]
	salt := rnd.Uint64()
	return d.cutWith(func(what uint64) bool { return int(mix(what^salt)>>33%100) < percent })
}

// keep makes a change of names survive.
func (ch *change) keep(names map[string]*inode, dirs map[string]bool) {
	switch {
	case ch.node == nil && ch.from == "":
		dirs[ch.to] = true
		return
	case ch.node == nil && ch.to == "":
		delete(dirs, ch.from)
		return
	case ch.node == nil:
		moved(names, ch.from, ch.to)
		moved(dirs, ch.from, ch.to)
		return
	case ch.from != "" && names[ch.from] == ch.node:
		delete(names, ch.from)
	}
	if ch.to != "" {
		names[ch.to] = ch.node
	}
}

// dropLost loses what lies in a folder that is lost.
func (d *Disk) dropLost(names map[string]*inode) {
	lost := func(p string) bool {
		for p != "/" {
			if p = filepath.Dir(p); !d.kept[p] {
				return true
			}
		}
		return false
	}
	maps.DeleteFunc(d.kept, func(p string, _ bool) bool { return lost(p) })
	maps.DeleteFunc(names, func(p string, _ *inode) bool { return lost(p) })
	d.dirs = maps.Clone(d.kept)
}

// mix is a hash of 64 bits (splitmix64's finaliser).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (d *Disk) cutWith(survives func(what uint64) bool) *Disk {
	c := NewDisk(mix(d.seed + 1))
	c.boot, c.nameless, c.free = d.boot+1, d.nameless, d.free
	c.kept = maps.Clone(d.kept)
	c.nextID = d.nextID
	names := make(map[string]*inode, len(d.stable))
	for k, v := range d.stable {
		names[k] = v
	}
	for i, ch := range d.pending {
		if !survives(uint64(i)<<32 | 0xd1) {
			break
		}
		ch.keep(names, c.kept)
	}
	c.dropLost(names)
	done := map[*inode]*inode{}
	for path, n := range names {
		if done[n] == nil {
			done[n] = n.cut(survives)
			done[n].rnd = rand.New(rand.NewPCG(c.seed, n.id))
		}
		done[n].path = path
		c.names[path], c.stable[path] = done[n], done[n]
	}
	return c
}

// kill returns what the death of its programs leaves of a file: what the kernel has, which is not on the medium for
// that. Of pages that it could not write it may forget what they held, for it takes them for clean.
func (n *inode) kill(rnd *rand.Rand) *inode {
	c := &inode{id: n.id, path: n.path, size: n.size, synced: n.synced, pages: maps.Clone(n.pages), old: maps.Clone(n.old),
		clean: maps.Clone(n.clean), failed: n.failed, rnd: rnd}
	if n.medium != nil {
		c.cached, c.medium, c.differs = slices.Clone(n.seen()), slices.Clone(n.medium), n.differs.copyOf(n)
	}
	c.lost = maps.Clone(n.lost)
	c.drop()
	return c
}

// drop has the kernel drop some of the pages that it could not write: they are read from the medium again.
func (n *inode) drop() {
	for _, i := range slices.Sorted(maps.Keys(n.lost)) {
		if n.rnd.IntN(2) == 0 {
			continue
		}
		if was := n.lost[i]; was == nil {
			delete(n.pages, i)
		} else {
			n.pages[i] = was
		}
		delete(n.lost, i)
	}
}

// sized returns a file of the size that survives, without its contents.
func (n *inode) sized(survives func(uint64) bool) *inode {
	at := func(s int64) bool { return survives(n.id<<40 + uint64(s)) }
	c := &inode{id: n.id, size: n.size, pages: make(map[int64][]byte, len(n.pages)), old: map[int64][]byte{}, lost: map[int64][]byte{}, clean: map[int][]byte{}}
	if n.size != n.synced && !at(1<<38) {
		// A size that was not synced: the old one, or one between.
		c.size = n.synced
		if lo, hi := n.synced/sector, n.size/sector; at(1<<38+1) && hi > lo {
			c.size = max(c.size, (lo+int64(mix(n.id+uint64(hi))%uint64(hi-lo)))*sector)
		}
	}
	c.synced = c.size
	return c
}

// cut returns what survives of a file.
func (n *inode) cut(survives func(uint64) bool) *inode {
	at := func(s int64) bool { return survives(n.id<<40 + uint64(s)) }
	c := n.sized(survives)
	if seen := n.seen(); seen != nil {
		c.medium = slices.Clone(n.medium)
		for i := range n.differs.in(n, 0, len(seen)) {
			if n.isClean(i) {
				continue
			}
			for s := i * page; s < min(i*page+page, len(seen)); s += sector {
				if at(int64(s / sector)) {
					copy(c.medium[s:s+sector], seen[s:])
				}
			}
		}
		return c
	}
	for i, p := range n.pages {
		if lost, ok := n.lost[i]; ok {
			p = make([]byte, page)
			copy(p, lost)
		} else if was, dirty := n.old[i]; dirty {
			m := make([]byte, page)
			copy(m, was)
			for s := range page / sector {
				if at(i*page/sector + int64(s)) {
					copy(m[s*sector:(s+1)*sector], p[s*sector:])
				}
			}
			p = m
		}
		if (i+1)*page > c.size {
			p = slices.Clone(p)
			clear(p[max(0, c.size-i*page):])
		}
		c.pages[i] = p
	}
	return c
}
