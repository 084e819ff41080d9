package handlers

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
	"golang.org/x/sys/unix"
)

// removable is a ring whose data area can be taken away. It is there again for the kernel's side.
type removable struct {
	*tcmutest.Kernel
	t    testing.TB
	data []byte
}

func newRemovable(t testing.TB) *removable {
	const pages, page = 18, 4096
	mem, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	k := tcmutest.New(tcmutest.Options{RingBytes: 2*page - 128, Blocks: pages - 2, Memory: mem})
	return &removable{Kernel: k, t: t, data: mem[2*page:]}
}

func (r *removable) protect(how int) {
	if err := unix.Mprotect(r.data, how); err != nil {
		r.t.Error(err)
	}
}

func (r *removable) Notify() error {
	r.protect(unix.PROT_READ | unix.PROT_WRITE)
	return r.Kernel.Notify()
}

// TestFaultOfData: a ring whose memory was taken away ends, its commands have an answer, and the other
// units of the array go on.
func TestFaultOfData(t *testing.T) {
	h := newHost(t)
	a := NewArray(h, nil)
	k := newRemovable(t)
	d, err := tcmu.Attach(k, tcmu.Info{HBA: "0", Name: "lun", Subtype: "array", Config: "gold/a", Size: lunSize, BlockSize: 512})
	if err != nil {
		t.Fatal(err)
	}
	u, err := a.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	call, err := k.Send(cdb10(0x2A, 0, 8), make([]byte, 4096), 0)
	if err != nil {
		t.Fatal(err)
	}
	k.protect(unix.PROT_NONE)
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(u) }()
	select {
	case err := <-ended:
		if !errors.Is(err, tcmu.ErrFault) {
			t.Errorf("Serve ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
	}
	held := make(chan struct{})
	go func() {
		h.exec.Lock()
		close(held)
		h.exec.Unlock()
	}()
	select {
	case <-held:
	case <-time.After(time.Minute):
		t.Fatal("the executor is locked")
	}
	if r := call.Wait(); r.Status != 2 || r.Sense[2] != 4 {
		t.Errorf("status %#x, sense % x", r.Status, r.Sense[:18])
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	other := mustOpen(t, a, "gold/b", tcmutest.Options{})
	other.do(testUnitReady, nil, 0)
	other.close()
}

// TestFaultInTheCore: what was interrupted while it held the executor is nobody's to go on with.
func TestFaultInTheCore(t *testing.T) {
	h := newHost(t)
	k := newRemovable(t)
	d, err := tcmu.Attach(k, tcmu.Info{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r, ok := recover().(string); !ok || !strings.Contains(r, "the core was interrupted") {
			t.Errorf("panic: %v", r)
		}
		h.exec.Unlock()
	}()
	k.protect(unix.PROT_NONE)
	err = d.Guard(func() { enter(h.exec, func() { k.data[0] = 1 }) })
	t.Errorf("it is the ring's alone: %v", err)
}
