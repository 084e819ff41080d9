package simulated

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// Client is a connection to a cluster; its methods are called on the executor, which has one thread.
type Client struct {
	c         *Cluster
	exec      block.Clock // of the world: what was sent gets there though the process is stopped
	process   *Process    // nil: one that is never stopped
	namespace string
	name      string
	address   string
	epoch     int // of the map that it has
	flying    []*flight
	last      map[string]int64 // when the last operation on an object arrives
	ops       int              // under way
	bytes     int              // of these
	watches   []func(error)
	dead      bool
	cut       bool // by Interrupt
}

var _ rados.Cluster = (*Client)(nil)

// What librados has under way before it lets its caller wait (objecter_inflight_ops and _op_bytes).
const (
	mostOps   = 1024
	mostBytes = 100 << 20
)

// flight is an operation, or a call of After, that has not ended.
type flight struct {
	op      *rados.Op
	sent    *rados.Op
	size    int
	fn      func() // of After
	osd     int
	due     int64
	number  int
	arrived bool
	held    bool // its process was stopped before it was sent
	asked   bool // whether it is held was decided
	timer   block.Timer
}

// Connect returns a client in virtual time: of the world, or of one of its processes.
func (c *Cluster) Connect(exec block.Executor, namespace string) *Client {
	c.clients++
	var clock block.Clock = exec
	process, _ := exec.(*Process)
	if process != nil {
		clock = process.v
	}
	return &Client{c: c, exec: clock, process: process, namespace: namespace, name: fmt.Sprintf("client.%d", c.clients), address: fmt.Sprintf("10.0.0.1:0/%d", c.clients),
		epoch: c.epoch, last: map[string]int64{}}
}

// Submit sends an operation.
func (cl *Client) Submit(op *rados.Op) {
	if cl.dead {
		return
	}
	if cl.ops++; cl.ops > mostOps {
		panic("simulated: librados would have had its caller wait")
	}
	if cl.bytes += op.Bytes(); cl.bytes > mostBytes {
		panic("simulated: librados would have had its caller wait for bytes")
	}
	cl.c.stray()
	cl.c.spread()
	at := max(cl.exec.Now()+cl.c.latency(), cl.last[op.Object])
	cl.last[op.Object] = at
	cl.fly(&flight{op: op, size: op.Bytes(), sent: copyOf(op), osd: cl.c.osdOf(cl.namespace + "/" + op.Object), due: at})
}

// After calls fn later.
func (cl *Client) After(ns int64, fn func()) {
	if !cl.dead {
		cl.fly(&flight{fn: fn, due: cl.exec.Now() + ns})
	}
}

func (cl *Client) fly(f *flight) {
	f.number = cl.c.clients<<32 + cl.c.Applied // only to tell equal times apart
	if n := len(cl.flying); n > 0 {
		f.number = cl.flying[n-1].number + 1
	}
	cl.flying = append(cl.flying, f)
	f.timer = cl.exec.At(f.due, func() { cl.step(f) })
}

// step lets an operation arrive, or its answer.
func (cl *Client) step(f *flight) {
	if cl.dead {
		return
	}
	f.timer.Stop()
	if f.fn == nil && !f.arrived {
		if cl.holds(f) {
			cl.again(f, cl.exec.Now()+cl.c.opt.Latency+1e6)
			return
		}
		if first := cl.firstOf(f); first != f { // that one waits for its OSD
			cl.again(f, first.due)
			return
		}
		if !cl.c.arrive(cl, f.sent, f.osd) {
			cl.again(f, cl.exec.Now()+cl.c.opt.Latency+1e6)
			return
		}
		f.arrived = true
		f.op.Err = f.sent.Err
		cl.again(f, cl.exec.Now()+cl.c.latency())
		return
	}
	cl.flying = slices.DeleteFunc(cl.flying, func(o *flight) bool { return o == f })
	if cl.process != nil {
		cl.process.Run(func() { cl.deliver(f) })
		return
	}
	cl.deliver(f)
}

// deliver calls who waits for a flight.
func (cl *Client) deliver(f *flight) {
	if cl.dead {
		return
	}
	if f.fn != nil {
		f.fn()
		return
	}
	cl.ops--
	cl.bytes -= f.size
	f.op.Done(f.op)
}

// holds reports whether an operation was not sent when its process was stopped, and so waits for that.
func (cl *Client) holds(f *flight) bool {
	if cl.process == nil || !cl.process.stopped {
		return false
	}
	if !f.asked {
		f.asked, f.held = true, cl.c.rnd.IntN(2) == 0
	}
	return f.held
}

// ask has the OSD of an object carry out a call of one of its classes, which waits there as any operation does. Where no
// thread waits in virtual time it is carried out at once.
func (cl *Client) ask(object string, fn func() error) error {
	if cl.process == nil || !cl.process.inside {
		if err := cl.check(); err != nil {
			return err
		}
		return fn()
	}
	if cl.dead {
		return errGone
	}
	over := false
	op := &rados.Op{Object: object, Priv: fn, Done: func(*rados.Op) { over = true }}
	cl.Submit(op)
	cl.process.wait(func() bool { return over || cl.cut })
	if !over {
		return rados.ErrCanceled
	}
	return op.Err
}

// hop is the time that a request to the monitors takes in one direction, where others go on meanwhile.
func (cl *Client) hop() {
	if cl.process != nil && cl.process.inside {
		cl.wait(cl.c.latency())
	}
}

// wait lets so much time go by, where others go on meanwhile.
func (cl *Client) wait(ns int64) {
	if cl.process == nil || !cl.process.inside {
		return
	}
	over := false
	cl.fly(&flight{fn: func() { over = true }, due: cl.exec.Now() + ns})
	cl.process.wait(func() bool { return over || cl.cut })
}

// again has step called again.
func (cl *Client) again(f *flight, due int64) {
	f.due = max(f.due, due)
	f.timer = cl.exec.At(f.due, func() { cl.step(f) })
}

// copyOf returns an operation with a copy of what it writes: the bytes that the caller has may be others
// when it arrives.
func copyOf(op *rados.Op) *rados.Op {
	if op.Reads() {
		return op
	}
	c := &rados.Op{Object: op.Object, Steps: slices.Clone(op.Steps)}
	for i := range c.Steps {
		s := &c.Steps[i]
		if len(s.Data) > 0 {
			s.Data = [][]byte{bytes.Join(s.Data, nil)}
		}
		s.Pairs = slices.Clone(s.Pairs)
		for k := range s.Pairs {
			s.Pairs[k].Value = bytes.Clone(s.Pairs[k].Value)
		}
	}
	return c
}

// firstOf returns the first operation on a flight's object that has not arrived.
func (cl *Client) firstOf(f *flight) *flight {
	for _, o := range cl.flying {
		if o.op != nil && !o.arrived && o.op.Object == f.op.Object {
			return o
		}
	}
	return nil
}

// Wait lets what is on its way arrive, the earliest first, in no time at all. The thread of a process waits in
// virtual time.
func (cl *Client) Wait(until func() bool) {
	if cl.process != nil && cl.process.inside {
		cl.process.wait(until)
		return
	}
	for tries := 0; !until(); tries++ {
		if len(cl.flying) == 0 {
			panic("simulated: somebody waits, and nothing is in progress")
		}
		if tries > 10_000_000 {
			panic("simulated: somebody waits for ever")
		}
		f := slices.MinFunc(cl.flying, func(x, y *flight) int {
			return cmp.Or(cmp.Compare(x.due, y.due), cmp.Compare(x.number, y.number))
		})
		if f.op != nil && !f.arrived && cl.c.osds[f.osd].stopped {
			cl.c.Continue() // time does not go on here: another OSD takes over
		}
		cl.step(f)
	}
}

func (cl *Client) lock(object, name string) string { return cl.namespace + "/" + object + "/" + name }

// errGone is the error of what is asked of a client that has died.
var errGone = errors.New("the client has died")

func (cl *Client) check() error {
	if cl.dead {
		return errGone
	}
	if _, ok := cl.c.blocked[cl.address]; ok {
		return errFenced
	}
	if cl.cut {
		return rados.ErrCanceled
	}
	return nil
}

// Interrupt has who waits for an answer wait no more.
func (cl *Client) Interrupt() { cl.cut = true }

// Lock takes a lock.
func (cl *Client) Lock(object, name, cookie string) error {
	return cl.ask(object, func() error {
		if _, ok := cl.c.locks[cl.lock(object, name)]; ok {
			return rados.ErrBusy
		}
		cl.c.locks[cl.lock(object, name)] = rados.Locker{Client: cl.name, Cookie: cookie, Address: cl.address}
		return nil
	})
}

// Unlock gives a lock back.
func (cl *Client) Unlock(object, name, cookie string) error {
	return cl.BreakLock(object, name, rados.Locker{Client: cl.name, Cookie: cookie, Address: cl.address})
}

// Lockers lists the holder of a lock.
func (cl *Client) Lockers(object, name string) (list []rados.Locker, err error) {
	var found []rados.Locker
	err = cl.ask(object, func() error {
		if l, ok := cl.c.locks[cl.lock(object, name)]; ok {
			found = append(found, l)
		}
		return nil
	})
	if err == nil {
		list = found
	}
	return list, err
}

// BreakLock takes a lock away.
func (cl *Client) BreakLock(object, name string, l rados.Locker) error {
	return cl.ask(object, func() error {
		if cl.c.locks[cl.lock(object, name)] != l {
			return rados.ErrNotFound
		}
		delete(cl.c.locks, cl.lock(object, name))
		return nil
	})
}

// Blocklist makes a map in which clients are refused. OSDs hear of it one by one.
func (cl *Client) Blocklist(addresses []string, _ int) error {
	if cl.c.MonitorTimeout > 0 {
		return cl.blocklistPart(addresses)
	}
	cl.wait(cl.c.opt.Monitor)
	cl.hop()
	defer cl.hop()
	if err := cl.check(); err != nil {
		return err
	}
	if cl.c.FailMonitor != nil {
		return cl.c.FailMonitor
	}
	cl.refuse(addresses)
	return cl.forget()
}

// blocklistPart does so with the first of some clients, with monitors that say nothing of the others.
func (cl *Client) blocklistPart(addresses []string) error {
	n := min(cl.c.MonitorPart, len(addresses))
	if n > 0 && cl.check() == nil {
		cl.refuse(addresses[:n])
	}
	err := cl.timeout()
	parts := make([]error, len(addresses))
	for i := range parts[n:] {
		parts[n+i] = err
	}
	return rados.RequestError(parts)
}

// refuse makes a map in which clients are refused.
func (cl *Client) refuse(addresses []string) {
	cl.c.epoch++
	for _, address := range addresses {
		cl.c.Blocklisted++
		if _, ok := cl.c.blocked[address]; !ok && !cl.c.opt.NoBlocklist {
			cl.c.blocked[address] = cl.c.epoch
		}
	}
}

// forget returns the error of a request to the monitors that has taken effect.
func (cl *Client) forget() error {
	if cl.c.ForgetMonitor == nil {
		return nil
	}
	return cl.c.ForgetMonitor()
}

// timeout waits for a monitor that says nothing.
func (cl *Client) timeout() error {
	if cl.wait(cl.c.MonitorTimeout); cl.cut {
		return rados.ErrCanceled
	}
	return rados.ErrUnanswered
}

// LatestMap gets the newest map.
func (cl *Client) LatestMap() error {
	if cl.c.MonitorTimeout > 0 {
		return cl.timeout()
	}
	cl.wait(cl.c.opt.Monitor)
	cl.hop()
	defer cl.hop()
	if cl.c.FailMonitor != nil {
		return cl.c.FailMonitor
	}
	cl.epoch = cl.c.epoch
	if err := cl.check(); err != nil {
		return err
	}
	return cl.forget()
}

// Watch notes who wants to hear of a loss.
func (cl *Client) Watch(object string, lost func(error)) error {
	return cl.ask(object, func() error {
		cl.watches = append(cl.watches, lost)
		return nil
	})
}

// Disturb has the watches hear that the cluster may have dropped the client.
func (cl *Client) Disturb() {
	for _, fn := range cl.watches {
		cl.After(0, func() { fn(errGone) })
	}
}

// Address is what Blocklist takes.
func (cl *Client) Address() string { return cl.address }

// closeWait is for how long Close waits for calls that are under way, in nanoseconds.
const closeWait = 5e9

// Close ends the connection.
func (cl *Client) Close() error {
	if cl.process != nil && cl.process.inside && cl.asks() {
		late := false
		cl.fly(&flight{fn: func() { late = true }, due: cl.exec.Now() + closeWait})
		cl.process.wait(func() bool { return late || !cl.asks() })
	}
	return cl.end()
}

// asks reports whether calls of an OSD's classes are under way.
func (cl *Client) asks() bool {
	return slices.ContainsFunc(cl.flying, func(f *flight) bool { return f.op != nil && f.op.Priv != nil })
}

func (cl *Client) end() error {
	cl.dead = true
	for _, f := range cl.flying {
		f.timer.Stop()
	}
	cl.flying = nil
	return nil
}

// Kill is the death of the client's process. What it has sent to an OSD arrives up to some operation, now
// or later, and the rest never.
func (cl *Client) Kill() {
	if cl.dead {
		return
	}
	sent := make([][]*flight, len(cl.c.osds)) // by OSD, in their order
	for _, f := range cl.flying {
		if f.op != nil && !f.arrived {
			sent[f.osd] = append(sent[f.osd], f)
		}
	}
	cl.end()
	for _, list := range sent {
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, func(x, y *flight) int { return cmp.Compare(x.due, y.due) })
		n := cl.c.rnd.IntN(len(list) + 1)
		now := cl.c.rnd.IntN(n + 1)
		for i, f := range list[:n] {
			if i < now && cl.c.arrive(cl, f.sent, f.osd) {
				continue
			}
			cl.c.late = append(cl.c.late, &late{cl, f.sent, f.osd})
			now = 0
		}
	}
}
