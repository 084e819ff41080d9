//go:build rados && linux

package librados

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store/rados"
)

// mountSeconds is how long connecting may take.
const mountSeconds = "20"

// client is a connection. librados calls back from threads of its own, which only queue what has ended:
// one goroutine delivers it.
type client struct {
	number  uintptr // in clients
	cluster uintptr
	io      uintptr

	mu      sync.Mutex
	cond    *sync.Cond
	slots   []*slot              // guarded by mu
	free    []*slot              // guarded by mu
	ended   []func()             // to be delivered; guarded by mu
	timers  map[*time.Timer]bool // guarded by mu
	flying  int                  // operations under way; guarded by mu
	rounds  uint64               // of deliveries; guarded by mu
	closed  bool                 // guarded by mu
	watches []*watch             // by number; guarded by mu
	asking  int                  // calls of librados that wait for an answer; guarded by mu
	locking chan struct{}        // closed when the last call of Lock has its answer; nil: there was none; guarded by mu
	stop    chan struct{}        // closed by Interrupt
	done    chan struct{}

	interrupt sync.Once
}

// watch is interest in an object.
type watch struct {
	object string
	lost   func(error)
	cookie uint64 // 0: it is not registered; guarded by client.mu
	busy   bool   // it is being registered again; guarded by client.mu
}

var _ rados.Cluster = (*client)(nil)

// clients are those that callbacks may be for: librados is given numbers, not pointers.
var clients struct {
	sync.Mutex
	list []*client
}

const slotBits = 20 // of a callback's argument; the rest is the number of the client

// Connect connects to a pool. It waits for the monitors for 20 s at the most.
func Connect(cfg Config) (rados.Cluster, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	l := &library
	c := &client{done: make(chan struct{}), stop: make(chan struct{}), timers: map[*time.Timer]bool{}}
	c.cond = sync.NewCond(&c.mu)
	if r := call(l.create2, uintptr(unsafe.Pointer(&c.cluster)), uintptr(unsafe.Pointer(text("ceph"))), uintptr(unsafe.Pointer(text("client."+cfg.User))), 0); r < 0 {
		return nil, explain(&cfg, "prepare", r)
	}
	fail := func(what string, r int) (rados.Cluster, error) {
		call(l.shutdown, c.cluster)
		return nil, explain(&cfg, what, r)
	}
	var conf *byte
	if cfg.Conf != "" {
		conf = text(cfg.Conf)
	}
	if r := call(l.conf_read_file, c.cluster, uintptr(unsafe.Pointer(conf))); r < 0 {
		return fail("read the configuration of", r)
	}
	set := [][2]string{{"client_mount_timeout", mountSeconds}, {"rados_osd_op_timeout", "0"}, {"rados_mon_op_timeout", "30"}}
	if cfg.Keyring != "" {
		set = append(set, [2]string{"keyring", cfg.Keyring})
	}
	for _, s := range set {
		if r := call(l.conf_set, c.cluster, uintptr(unsafe.Pointer(text(s[0]))), uintptr(unsafe.Pointer(text(s[1])))); r < 0 {
			return fail("set "+s[0]+" for", r)
		}
	}
	if r := call(l.connect, c.cluster); r < 0 {
		return fail("connect to", r)
	}
	if r := call(l.ioctx_create, c.cluster, uintptr(unsafe.Pointer(text(cfg.Pool))), uintptr(unsafe.Pointer(&c.io))); r < 0 {
		return fail("open", r)
	}
	call(l.ioctx_set_namespace, c.io, uintptr(unsafe.Pointer(text(cfg.Namespace))))
	call(l.set_pool_full_try, c.io) // locks and watches, which have no flags, would wait for room that they do not need
	clients.Lock()
	c.number = uintptr(len(clients.list))
	clients.list = append(clients.list, c)
	clients.Unlock()
	go c.deliver()
	return c, nil
}

// of returns the client and the slot or watch of a callback's argument; nil: it has been closed.
func of(arg uintptr) (*client, int) {
	clients.Lock()
	defer clients.Unlock()
	return clients.list[arg>>slotBits], int(arg & (1<<slotBits - 1))
}

// deliver calls what has ended.
func (c *client) deliver() {
	defer close(c.done)
	for {
		c.mu.Lock()
		for len(c.ended) == 0 && !c.closed {
			c.cond.Wait()
		}
		list := c.ended
		c.ended = nil
		over := c.closed
		c.mu.Unlock()
		if over {
			return
		}
		for _, fn := range list {
			fn()
			c.mu.Lock()
			c.rounds++
			c.cond.Broadcast()
			c.mu.Unlock()
		}
	}
}

// queue has fn delivered.
func (c *client) queue(fn func()) {
	c.mu.Lock()
	c.ended = append(c.ended, fn)
	c.cond.Broadcast()
	c.mu.Unlock()
}

// After calls fn later.
func (c *client) After(ns int64, fn func()) {
	if ns <= 0 {
		c.queue(fn)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(time.Duration(ns), func() {
		c.mu.Lock()
		delete(c.timers, t)
		c.mu.Unlock()
		c.queue(fn)
	})
	c.timers[t] = true
}

// Wait waits for deliveries until something is true.
func (c *client) Wait(until func() bool) {
	for {
		c.mu.Lock()
		seen := c.rounds
		c.mu.Unlock()
		if until() {
			return
		}
		c.mu.Lock()
		for c.rounds == seen && !c.closed {
			c.cond.Wait()
		}
		closed := c.closed
		c.mu.Unlock()
		if closed {
			return
		}
	}
}

// Watch watches an object.
func (c *client) Watch(object string, fn func(error)) error {
	c.mu.Lock()
	number, w := len(c.watches), &watch{object: object, lost: fn}
	c.watches = append(c.watches, w)
	c.mu.Unlock()
	return c.askError(func() error { return c.register(number, w) })
}

// watchSeconds is how long the cluster keeps a watch of a client that it does not hear.
const watchSeconds = 30

// register registers a watch.
func (c *client) register(number int, w *watch) error {
	var cookie uint64
	r := call(library.watch3, c.io, uintptr(unsafe.Pointer(text(w.object))), uintptr(unsafe.Pointer(&cookie)), library.notified, library.lost,
		watchSeconds, c.number<<slotBits|uintptr(number))
	if r < 0 {
		return errorOf(r)
	}
	c.mu.Lock()
	w.cookie = cookie
	c.mu.Unlock()
	return nil
}

// again registers a watch again that was lost, until that works or the client is closed or fenced.
func (c *client) again(number int, w *watch) {
	for {
		c.mu.Lock()
		cookie, closed := w.cookie, c.closed
		w.cookie = 0
		if closed {
			w.busy = false
		}
		c.mu.Unlock()
		if closed {
			return
		}
		if cookie != 0 {
			call(library.unwatch2, c.io, uintptr(cookie))
		}
		err := c.register(number, w)
		if err == nil || errors.Is(err, block.ErrFenced) {
			c.mu.Lock()
			w.busy = false
			c.mu.Unlock()
			return
		}
		time.Sleep(time.Second)
	}
}

// notified is called by librados when somebody notifies who watches, which nobody does.
func notified(_, _, _, _, _, _ uintptr) uintptr { return 0 }

// lost is called by librados when a watch may be lost.
func lost(arg, _, errno uintptr) uintptr {
	c, number := of(arg)
	if c == nil {
		return 0
	}
	c.mu.Lock()
	w := c.watches[number]
	begin := !w.busy && !c.closed
	w.busy = w.busy || begin
	c.mu.Unlock()
	c.queue(func() { w.lost(errorOf(int(int32(errno)))) })
	if begin { // not from here: this is a thread that librados needs for the answer
		go c.again(number, w)
	}
	return 0
}

// closeWait is how long Close waits for what is under way.
const closeWait = 5 * time.Second

// Close ends the connection. An operation that never ends keeps librados's threads and memory, for it may
// still write there.
func (c *client) Close() error {
	for end := time.Now().Add(closeWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		c.mu.Lock()
		n := c.flying + c.asking
		for _, w := range c.watches {
			if w.busy {
				n++
			}
		}
		c.mu.Unlock()
		if n == 0 {
			break
		}
	}
	c.mu.Lock()
	left := c.flying + c.asking
	c.closed = true
	var watching []uint64
	for _, w := range c.watches {
		if w.busy { // its call may never end
			left++
		} else if w.cookie != 0 {
			watching = append(watching, w.cookie)
		}
	}
	c.mu.Unlock()
	if left == 0 {
		for _, cookie := range watching {
			call(library.unwatch2, c.io, uintptr(cookie))
		}
	}
	c.mu.Lock()
	for t := range c.timers {
		t.Stop()
	}
	c.cond.Broadcast()
	c.mu.Unlock()
	<-c.done
	if left > 0 {
		return fmt.Errorf("%d operations of the cluster have not ended: %w", left, errUnanswered)
	}
	call(library.ioctx_destroy, c.io)
	call(library.shutdown, c.cluster)
	clients.Lock()
	clients.list[c.number] = nil
	clients.Unlock()
	return nil
}

var errUnanswered = errors.New("the cluster does not answer")
