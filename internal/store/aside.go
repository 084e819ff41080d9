package store

// group is transfers of one Submit that wait for no disk, and are done beside the core by whoever
// leaves it. Groups are used again.
type group struct {
	s              *Files
	list           []*xfer
	bytes          uint64
	workFn, doneFn func()
	next           *group
}

// join adds a transfer that has begun to a group, a new one if there is none yet.
func (s *Files) join(g *group, x *xfer) *group {
	if g == nil {
		if g = s.freeGroups; g == nil {
			g = &group{s: s}
			g.workFn, g.doneFn = g.work, g.done
		} else {
			s.freeGroups = g.next
		}
	}
	x.m.users.Add(1)
	if x.near = x.m.inView(x.io); !x.near && !x.io.Write {
		x.findSums()
	}
	g.list = append(g.list, x)
	g.bytes += x.io.N
	return g
}

// begin has the transfers of a group done. The next ones have another group.
func (g *group) begin() *group {
	g.s.groups++
	g.s.aside.Aside(g.bytes, g.workFn, g.doneFn)
	return nil
}

// work carries the transfers out. It is not on the executor.
func (g *group) work() {
	for _, x := range g.list {
		switch {
		case !x.io.Write:
			x.readInPlace()
		case !x.near || !x.m.transferInView(x.io, &x.own):
			x.err = x.m.transferWith(x.io, &x.own)
		}
	}
}

// done ends them.
func (g *group) done() {
	s := g.s
	for _, x := range g.list {
		_ = x.m.release()
	}
	s.endMu.Lock()
	s.done = append(s.done, g.list...)
	s.endMu.Unlock()
	clear(g.list)
	g.list, g.bytes = g.list[:0], 0
	g.next, s.freeGroups = s.freeGroups, g
	s.finish()
	if s.groups--; s.groups == 0 && s.groupsEnd != nil {
		close(s.groupsEnd)
	}
}

// readInPlace reads into the reader's buffers. They cannot be given back meanwhile, which takes no longer
// than copying what was read.
func (x *xfer) readInPlace() {
	m, io := x.m, x.io
	m.vecs.RLock()
	defer m.vecs.RUnlock()
	if io.Vec == nil && io.N > 0 {
		x.err = errAbandoned
		return
	}
	if x.near && m.transferInView(io, &x.own) {
		return
	}
	if x.known && readFull(m.f, io.Vec, int64(io.Off)) == nil && m.verify(io, x.own.list[0]) == nil {
		return
	}
	x.mistrust()
	x.err = m.transferWith(io, &x.own)
}
