package tcmu

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

// TestOpenUIO maps a file that stands for a device.
func TestOpenUIO(t *testing.T) {
	for _, row := range []struct {
		name, size string
		device     bool
		says       string
	}{
		{"as it should be", "0x0000000000002000\n", true, ""},
		{"without a prefix", "2000", true, ""},
		{"no size", "", true, "bytes"},
		{"size 0", "0x0", true, "bytes"},
		{"nonsense", "many", true, "bytes"},
		{"no device", "0x2000", false, "no such file"},
	} {
		w := newWorld(t)
		w.file("sys/class/uio/uio4/maps/map0/size", row.size)
		if row.device {
			w.file("dev/uio4", strings.Repeat("\x2A", 8192))
		}
		link, err := w.root.openUIO(4)
		if row.says != "" {
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		if mem := link.Memory(); len(mem) != 8192 || mem[8191] != 0x2A {
			t.Errorf("%s: %d bytes", row.name, len(mem))
		}
		link.Memory()[0] = 1
		if err := link.Close(); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if v := w.value("dev/uio4"); v[0] != 1 {
			t.Errorf("%s: the mapping is private", row.name)
		}
		if err := link.Notify(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: Notify after Close: %v", row.name, err)
		}
	}
}

// TestWait: events end it, one at a time, and so does Stop, before it or meanwhile.
func TestWait(t *testing.T) {
	for _, row := range []struct {
		name  string
		early bool
	}{{"stopped before", true}, {"stopped meanwhile", false}} {
		t.Run(row.name, func(t *testing.T) {
			u, w := pipeDevice(t)
			defer w.Close()
			for range 3 {
				if _, err := w.Write(kick); err != nil {
					t.Fatal(err)
				}
				if err := u.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			if row.early {
				if err := u.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			end := make(chan error, 1)
			go func() { end <- u.Wait() }()
			if !row.early {
				if err := u.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-end; !errors.Is(err, os.ErrClosed) {
				t.Errorf("Wait ended with %v", err)
			}
			if err := u.Wait(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("the next Wait ended with %v", err)
			}
			if err := errors.Join(u.file.Close(), u.stop.Close(), unix.Close(u.gate)); err != nil {
				t.Error(err)
			}
		})
	}
}

// pipeDevice returns a link whose device is a pipe: it has something to read or it has not.
func pipeDevice(t *testing.T) (u *uio, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return &uio{file: r, fd: int(r.Fd()), stop: os.NewFile(uintptr(event), "eventfd")}, w
}

// TestManyWaits: each event ends one wait, and none is lost where the number of events is read; a
// device that goes away says so.
func TestManyWaits(t *testing.T) {
	u, w := pipeDevice(t)
	defer u.file.Close()
	defer u.stop.Close()
	for i := range 3 * countEvery {
		if _, err := w.Write(kick); err != nil {
			t.Fatal(err)
		}
		if err := u.Wait(); err != nil {
			t.Fatalf("wait %d: %v", i, err)
		}
	}
	left := (3*countEvery - 3) * len(kick) // the three that were read
	if _, err := io.CopyN(io.Discard, u.file, int64(left)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if err := u.Wait(); !errors.Is(err, io.EOF) {
		t.Errorf("Wait for a device that is gone ended with %v", err)
	}
	if err := unix.Close(u.gate); err != nil {
		t.Error(err)
	}
}

// faultyDevice is a device with one command, whose data is the last page of a mapping.
func faultyDevice(t *testing.T) (d *Device, l *memoryLink, data []byte) {
	const page = 4096
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	l = &memoryLink{mem: mem, stop: make(chan struct{}), gone: make(chan struct{})}
	mb := mailboxOf(mem)
	mb.version, mb.flags, mb.cmdrOff, mb.cmdrSize = 2, 15&^capReadLen, 128, 2*page-128
	e := mem[128:]
	ne := binary.NativeEndian
	ne.PutUint32(e, 128|opCmd)
	ne.PutUint16(e[4:], 1)
	ne.PutUint32(e[8:], 1)
	ne.PutUint64(e[24:], 128+112)
	ne.PutUint64(e[48:], 2*page)
	ne.PutUint64(e[56:], page)
	mb.cmdHead = 128
	if d, err = Attach(l, Info{}); err != nil {
		t.Fatal(err)
	}
	return d, l, mem[2*page:]
}

// remove takes memory away as the kernel does when a ring was reset.
func remove(t testing.TB, mem []byte) {
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		t.Error(err)
	}
}

// TestFault: memory that goes away under a handler ends the device and not the process.
func TestFault(t *testing.T) {
	d, l, data := faultyDevice(t)
	mb := mailboxOf(l.mem)
	h := &faulting{before: func() { remove(t, data) }}
	if err := d.Serve(h); !errors.Is(err, ErrFault) {
		t.Errorf("Serve ended with %v", err)
	}
	h.c.Complete(0, nil, All)
	if err := d.Close(t.Context()); err != nil || mb.tail() != 128 {
		t.Errorf("afterwards: %v, tail at %d", err, mb.tail())
	}
	<-l.gone
}

// TestFaultBefore: a handler never gets a command whose memory is gone. It has an answer, so that the
// device can be closed, and served again.
func TestFaultBefore(t *testing.T) {
	d, l, data := faultyDevice(t)
	remove(t, data)
	h := &faulting{}
	if err := d.Serve(h); !errors.Is(err, ErrFault) {
		t.Errorf("Serve ended with %v", err)
	}
	if h.c != nil {
		t.Error("the handler got the command")
	}
	r := (*cmdResponse)(unsafe.Pointer(&l.mem[128]))
	if err := d.Close(t.Context()); err != nil || mailboxOf(l.mem).tail() != 128 || r.status != 2 || r.sense[2] != 4 {
		t.Errorf("afterwards: %v, tail at %d, status %#x", err, mailboxOf(l.mem).tail(), r.status)
	}
}

// TestFaultLater: memory that goes away before a command is completed, by another goroutine, ends the
// device; the command has an answer.
func TestFaultLater(t *testing.T) {
	d, l, data := faultyDevice(t)
	h := &keeping{got: make(chan *Command, 1)}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(h) }()
	c := <-h.got
	remove(t, data)
	c.Complete(0, nil, 5)
	if r := (*cmdResponse)(unsafe.Pointer(&l.mem[128])); mailboxOf(l.mem).tail() != 128 || r.status != 2 || r.sense[2] != 4 {
		t.Errorf("tail at %d, status %#x", mailboxOf(l.mem).tail(), r.status)
	}
	if f := d.failure.Load(); f == nil || !errors.Is(*f, ErrFault) {
		t.Error("the device does not know")
	}
	if err := d.Close(t.Context()); err != nil {
		t.Error(err)
	}
	<-ended
}

type keeping struct{ got chan *Command }

func (k *keeping) Serve(b []*Command) { k.got <- b[0] }
func (*keeping) Close()               {}

type faulting struct {
	c      *Command
	before func()
}

func (f *faulting) Serve(b []*Command) {
	if f.c = b[0]; f.before != nil {
		f.before()
	}
	f.c.Data[0][5] = 1
}
func (*faulting) Close() {}

// TestPanicsPass: other panics of a handler are its author's to see.
func TestPanicsPass(t *testing.T) {
	k := tcmutest.New(tcmutest.Options{})
	if _, err := k.Send(make([]byte, 6), nil, 0); err != nil {
		t.Fatal(err)
	}
	d, err := Attach(k, Info{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a handler's panic was swallowed")
		}
	}()
	_ = d.Serve(&faulting{})
	t.Error("Serve returned")
}

// TestEndWithCommands: a server that ends blocks the device, waits for what is in
// progress, and leaves the device to the next one.
func TestEndWithCommands(t *testing.T) {
	w := newWorld(t)
	got := make(chan *Command, 1)
	e := w.device(1, "a/hold/x")
	k := tcmutest.New(tcmutest.Options{})
	s, err := start(Options{Subtypes: []Subtype{holding{testSubtype{w}, got}}}, w.root, w, func(uint32) (Link, error) { return k, nil })
	if err != nil {
		t.Fatal(err)
	}
	if s.Devices() == nil {
		t.Fatal("the device is not served")
	}
	call, err := k.Send(make([]byte, 6), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := <-got
	end := make(chan error, 1)
	go func() { end <- s.closeAll() }()
	block := w.folder("a/hold/x") + "/action/block_dev"
	for w.value(block) != "1" {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-end:
		t.Fatalf("it ended under a command: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	c.Complete(0, nil, All)
	if err := <-end; err != nil {
		t.Error(err)
	}
	if r := call.Wait(); r.Status != 0 || k.Err() != nil || !k.Closed() || w.value(block) != "0" {
		t.Errorf("status %#x, %v, closed %t, block_dev=%s of %s", r.Status, k.Err(), k.Closed(), w.value(block), e.name)
	}
}

type holding struct {
	testSubtype
	got chan *Command
}

func (holding) Name() string                    { return "hold" }
func (h holding) Open(*Device) (Handler, error) { return h, nil }
func (h holding) Serve(b []*Command)            { h.got <- b[0] }
func (holding) Close()                          {}

// TestNotifyAfterClose: commands may end while their device is closed. What notifies then writes to no file
// that has got its descriptor since.
func TestNotifyAfterClose(t *testing.T) {
	dir := t.TempDir()
	dev, victim := filepath.Join(dir, "dev"), filepath.Join(dir, "victim")
	const precious = "data of an mdisk"
	for name, content := range map[string]string{dev: "", victim: precious} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var current atomic.Pointer[uio]
	var over atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer over.Store(true)
	all.Go(func() {
		for !over.Load() {
			if u := current.Load(); u != nil {
				if err := u.Notify(); err != nil && !errors.Is(err, os.ErrClosed) {
					t.Error(err)
				}
			}
		}
	})
	for range 3000 {
		f, err := os.OpenFile(dev, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		u := &uio{file: f, fd: int(f.Fd()), mem: mem, stop: os.NewFile(uintptr(ev), "eventfd")}
		current.Store(u)
		runtime.Gosched()
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		v, err := os.OpenFile(victim, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		runtime.Gosched()
		got := make([]byte, len(precious))
		_, err = v.ReadAt(got, 0)
		if v.Close(); err != nil || string(got) != precious {
			t.Fatalf("another file was written to: %q (%v)", got, err)
		}
	}
}
