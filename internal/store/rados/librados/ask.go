//go:build rados && linux

package librados

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/store/rados"
)

// Calls of librados that return when they have an answer: locks, and what the monitors are asked for.

// ask runs a call of librados that waits for an answer, and waits for its end or for Interrupt. Where that comes first, or
// came before, the call goes on, on its own: nothing in librados ends it.
func ask[T any](c *client, fn func() (T, error)) (value T, err error) {
	type answer struct {
		value T
		err   error
	}
	c.mu.Lock()
	c.asking++
	c.mu.Unlock()
	ch := make(chan answer, 1)
	go func() {
		v, err := fn()
		c.mu.Lock()
		c.asking--
		c.mu.Unlock()
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		return a.value, a.err
	case <-c.stop:
		select {
		case a := <-ch:
			return a.value, a.err
		default:
			return value, rados.ErrCanceled
		}
	}
}

// askError is ask for a call that returns nothing else.
func (c *client) askError(fn func() error) error {
	_, err := ask(c, func() (struct{}, error) { return struct{}{}, fn() })
	return err
}

// Interrupt has who waits for an answer wait no more.
func (c *client) Interrupt() {
	c.interrupt.Do(func() { close(c.stop) })
}

// Lock takes a lock.
func (c *client) Lock(object, name, cookie string) error {
	over := make(chan struct{})
	c.mu.Lock()
	c.locking = over
	c.mu.Unlock()
	return c.askError(func() error {
		defer close(over)
		return errorOf(call(library.lock_exclusive, c.io, uintptr(unsafe.Pointer(text(object))), uintptr(unsafe.Pointer(text(name))),
			uintptr(unsafe.Pointer(text(cookie))), uintptr(unsafe.Pointer(text("arraysim"))), 0, 0))
	})
}

// Unlock gives a lock back. It follows a call of Lock that nobody waits for any more.
func (c *client) Unlock(object, name, cookie string) error {
	c.mu.Lock()
	locking := c.locking
	c.mu.Unlock()
	return c.askError(func() error {
		if locking != nil {
			<-locking
		}
		return errorOf(call(library.unlock, c.io, uintptr(unsafe.Pointer(text(object))), uintptr(unsafe.Pointer(text(name))),
			uintptr(unsafe.Pointer(text(cookie)))))
	})
}

// Lockers lists who holds a lock.
func (c *client) Lockers(object, name string) ([]rados.Locker, error) {
	return ask(c, func() ([]rados.Locker, error) { return c.lockers(object, name) })
}

func (c *client) lockers(object, name string) ([]rados.Locker, error) {
	var exclusive int32
	for size := 4096; ; size *= 4 {
		var lens [4]uintptr
		var bufs [4][]byte // the tag, clients, cookies, addresses: each a list of texts that end with 0
		for i := range bufs {
			bufs[i], lens[i] = make([]byte, size), uintptr(size)
		}
		r := call(library.list_lockers, c.io, uintptr(unsafe.Pointer(text(object))), uintptr(unsafe.Pointer(text(name))),
			uintptr(unsafe.Pointer(&exclusive)), uintptr(unsafe.Pointer(&bufs[0][0])), uintptr(unsafe.Pointer(&lens[0])),
			uintptr(unsafe.Pointer(&bufs[1][0])), uintptr(unsafe.Pointer(&lens[1])), uintptr(unsafe.Pointer(&bufs[2][0])), uintptr(unsafe.Pointer(&lens[2])),
			uintptr(unsafe.Pointer(&bufs[3][0])), uintptr(unsafe.Pointer(&lens[3])))
		if r == -int(unix.ERANGE) {
			continue
		}
		if r < 0 {
			return nil, errorOf(r)
		}
		list := make([]rados.Locker, r)
		for i := range list {
			list[i] = rados.Locker{Client: take(&bufs[1]), Cookie: take(&bufs[2]), Address: take(&bufs[3])}
		}
		return list, nil
	}
}

// take cuts the first text off a list.
func take(list *[]byte) string {
	text, rest, _ := bytes.Cut(*list, []byte{0})
	*list = rest
	return string(text)
}

// BreakLock takes a lock away.
func (c *client) BreakLock(object, name string, l rados.Locker) error {
	return c.askError(func() error {
		return errorOf(call(library.break_lock, c.io, uintptr(unsafe.Pointer(text(object))), uintptr(unsafe.Pointer(text(name))),
			uintptr(unsafe.Pointer(text(l.Client))), uintptr(unsafe.Pointer(text(l.Cookie)))))
	})
}

// atOnce is how many requests to a monitor are under way at a time: each keeps a thread waiting.
const atOnce = 32

// Blocklist has clients refused. What a monitor is asked for at a time it decides at a time.
func (c *client) Blocklist(addresses []string, seconds int) error {
	return c.askError(func() error { return c.blocklist(addresses, seconds) })
}

func (c *client) blocklist(addresses []string, seconds int) error {
	errs := make([]error, len(addresses))
	var next atomic.Int32
	var silent atomic.Bool // the others need not wait for as long, one after the other
	var all sync.WaitGroup
	for range min(atOnce, len(addresses)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(addresses); i = int(next.Add(1)) - 1 {
				if errs[i] = rados.ErrUnanswered; silent.Load() {
					continue
				}
				errs[i] = errorOf(call(library.blocklist_add, c.cluster, uintptr(unsafe.Pointer(text(addresses[i]))), uintptr(seconds)))
				if errors.Is(errs[i], rados.ErrUnanswered) {
					silent.Store(true)
				}
			}
		})
	}
	all.Wait()
	return rados.RequestError(errs)
}

// LatestMap waits for the newest map of the OSDs.
func (c *client) LatestMap() error {
	return c.askError(func() error { return errorOf(call(library.wait_for_latest_osdmap, c.cluster)) })
}
