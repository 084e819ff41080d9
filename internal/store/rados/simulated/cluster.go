// Package simulated is RADOS in virtual time: objects, OSDs that serve them, and clients whose operations
// take their time, are answered late and out of order, outlive the client, and are refused when it is
// blocklisted, by each OSD from when it hears of that. It is deterministic for a seed.
//
// What it keeps of RADOS: operations are atomic; those of one client on one object take effect in their
// order; an operation that has no answer is not lost, but waits. An OSD learns of a new map from any
// operation of a client that has it.
package simulated

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// Options configure a Cluster.
type Options struct {
	OSDs int // 3 when left out
	// Latency is the usual time of an operation, in nanoseconds; Tail is the chance, in thousandths, that it
	// takes up to a hundred times as long, as where its answer was lost and it is sent again.
	Latency int64
	Tail    int
	// NoBlocklist makes blocklisting do nothing: the negative control of tests of fencing.
	NoBlocklist bool
	// Capacity in bytes of objects; 0 is without end.
	Capacity int
	// Monitor is what a request to the monitors takes besides, in nanoseconds.
	Monitor int64
}

// Cluster is what outlives its clients.
type Cluster struct {
	opt     Options
	rnd     *rand.Rand
	objects map[string]*object // by namespace and name
	locks   map[string]rados.Locker
	osds    []osd
	epoch   int            // of the newest map of the OSDs
	blocked map[string]int // clients, and the map from which on they are refused
	clients int
	used    int // bytes
	// late are operations of clients that have died, on their way to OSDs.
	late []*late
	// Fail, unless it is nil, returns the error of an operation that is to fail, or nil.
	Fail func(op *rados.Op) error
	// Forget, unless it is nil, returns the error of an operation that has taken effect and whose answer says otherwise, or
	// nil. To both a call of a lock or a watch is an operation without steps on its object, which has Priv.
	Forget func(op *rados.Op) error
	// FailMonitor, unless it is nil, is the error of requests to the monitors.
	FailMonitor error
	// ForgetMonitor, unless it is nil, returns the error of a request to the monitors that has taken effect, or nil.
	ForgetMonitor func() error
	// MonitorTimeout, unless it is 0, is when requests to the monitors end without an answer or an effect, in nanoseconds.
	MonitorTimeout int64
	// MonitorPart is how many clients of a request to blocklist some are refused though it ends so.
	MonitorPart int
	// Applied counts operations that have taken effect; Refused those of blocklisted clients, and Zombies
	// those that took effect when their client was dead. Blocklisted counts addresses that somebody blocklisted.
	Applied, Refused, Zombies, Blocklisted int
}

type osd struct {
	epoch   int // of the map that it has
	stopped bool
}

// late is an operation of a client that has died.
type late struct {
	client *Client
	op     *rados.Op // a copy
	osd    int
}

// New returns an empty cluster.
func New(opt Options, rnd *rand.Rand) *Cluster {
	if opt.OSDs == 0 {
		opt.OSDs = 3
	}
	return &Cluster{opt: opt, rnd: rnd, objects: map[string]*object{}, locks: map[string]rados.Locker{}, osds: make([]osd, opt.OSDs),
		blocked: map[string]int{}}
}

// Used returns the bytes of all objects.
func (c *Cluster) Used() int { return c.used }

// SetCapacity changes what the cluster has room for; 0 is without end.
func (c *Cluster) SetCapacity(n int) { c.opt.Capacity = n }

// SetMonitor changes what a request to the monitors takes, in nanoseconds.
func (c *Cluster) SetMonitor(ns int64) { c.opt.Monitor = ns }

// Objects lists the names of the objects of a namespace, in order.
func (c *Cluster) Objects(namespace string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		if rest, ok := strings.CutPrefix(name, namespace+"/"); ok {
			list = append(list, rest)
		}
	}
	return list
}

// Damage changes a byte of an object behind everybody's back; it reports whether there is one.
func (c *Cluster) Damage(namespace, name string, off int) bool {
	o := c.objects[namespace+"/"+name]
	if o == nil || uint64(off) >= o.size {
		return false
	}
	var b [1]byte
	o.read(uint64(off), b[:])
	o.write(uint64(off), [][]byte{{b[0] ^ 0x55}})
	return true
}

// Lose removes an object behind everybody's back; it reports whether there was one.
func (c *Cluster) Lose(namespace, name string) bool {
	o := c.objects[namespace+"/"+name]
	c.used -= o.bytes()
	delete(c.objects, namespace+"/"+name)
	return o != nil
}

// Locker returns who has a lock of an object of a namespace, if somebody has it. It asks no OSD.
func (c *Cluster) Locker(namespace, object, name string) (rados.Locker, bool) {
	l, ok := c.locks[namespace+"/"+object+"/"+name]
	return l, ok
}

// Stop has an OSD answer nothing until Continue: what it has to do waits.
func (c *Cluster) Stop(osd int) { c.osds[osd].stopped = true }

// Continue has all OSDs answer again.
func (c *Cluster) Continue() {
	for i := range c.osds {
		c.osds[i].stopped = false
	}
}

// OSDOf returns which OSD has an object of a namespace.
func (c *Cluster) OSDOf(namespace, object string) int { return c.osdOf(namespace + "/" + object) }

func (c *Cluster) osdOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(len(c.osds)))
}

// latency is how long something takes.
func (c *Cluster) latency() int64 {
	if c.opt.Latency == 0 {
		return 0
	}
	n := c.opt.Latency/2 + c.rnd.Int64N(c.opt.Latency+1)
	if c.rnd.IntN(1000) < c.opt.Tail {
		n += c.rnd.Int64N(100 * c.opt.Latency)
	}
	return n
}

// arrive has an OSD carry out an operation of a client; false: it does not answer now.
func (c *Cluster) arrive(cl *Client, op *rados.Op, osd int) bool {
	o := &c.osds[osd]
	if o.stopped {
		return false
	}
	o.epoch = max(o.epoch, cl.epoch)
	if at, ok := c.blocked[cl.address]; ok && o.epoch >= at {
		c.Refused++
		op.Err = errFenced
		return true
	}
	if c.Fail != nil {
		if op.Err = c.Fail(op); op.Err != nil {
			return true
		}
	}
	c.Applied++
	if call, ok := op.Priv.(func() error); ok {
		op.Err = call()
	} else {
		op.Err = c.apply(cl.namespace+"/"+op.Object, op)
	}
	if op.Err == nil && c.Forget != nil {
		op.Err = c.Forget(op)
	}
	return true
}

// stray lets operations of dead clients arrive, now and then.
func (c *Cluster) stray() {
	for len(c.late) > 0 && c.rnd.IntN(4) == 0 {
		i := c.rnd.IntN(len(c.late))
		x := c.late[i]
		for k, y := range c.late { // of one client and OSD, the first one
			if y.client == x.client && y.osd == x.osd {
				i, x = k, y
				break
			}
		}
		if !c.arrive(x.client, x.op, x.osd) {
			return
		}
		if x.op.Err == nil {
			c.Zombies++
		}
		c.late = append(c.late[:i:i], c.late[i+1:]...)
	}
}

// Settle lets all operations of dead clients arrive.
func (c *Cluster) Settle() {
	for _, x := range c.late {
		if c.arrive(x.client, x.op, x.osd) && x.op.Err == nil {
			c.Zombies++
		}
	}
	c.late = nil
}

// spread has OSDs hear of the newest map, now and then, as they do from each other.
func (c *Cluster) spread() {
	if c.rnd.IntN(20) == 0 {
		c.osds[c.rnd.IntN(len(c.osds))].epoch = c.epoch
	}
}

func (c *Cluster) String() string {
	return fmt.Sprintf("%d objects of %d bytes, map %d", len(c.objects), c.used, c.epoch)
}
