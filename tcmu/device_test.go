package tcmu_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arraysim/arraysim/tcmu"
	"github.com/arraysim/arraysim/tcmu/tcmutest"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0 takes one from the clock")

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -seed=%d", s)
	return s
}

// fill makes bytes random, eight at a time: under the race detector a number takes as long as much of a command.
func fill(r *rand.Rand, b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, r.Uint64())
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// ramp has the bytes 0 to 255 again and again: from any of them on, more than what a read has.
var ramp = func() []byte {
	var period []byte
	for i := range 256 {
		period = append(period, byte(i))
	}
	return bytes.Repeat(period, 256)
}()

// sum is a hash of bytes that no goroutine changes any more.
func sum(b []byte) uint64 { return uint64(crc32.Checksum(b, castagnoli)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// patience is how long a test waits before it calls a thing missing: a busy machine is no failure.
const patience = 2 * time.Minute

// handler is a Handler made of functions.
type handler struct {
	serve  func([]*tcmu.Command)
	manage func(tcmu.TMR)
	closed chan struct{}
}

func (h *handler) Serve(batch []*tcmu.Command) { h.serve(batch) }
func (h *handler) Close()                      { close(h.closed) }
func (h *handler) Manage(m tcmu.TMR) {
	if h.manage != nil {
		h.manage(m)
	}
}

// rig is a device with its kernel side and its serving goroutine.
type rig struct {
	*tcmutest.Kernel
	t      *testing.T
	dev    *tcmu.Device
	ended  chan error
	closed chan struct{}
}

func newRig(t *testing.T, o tcmutest.Options, h *handler) *rig {
	t.Helper()
	k := tcmutest.New(o)
	d, err := tcmu.Attach(k, tcmu.Info{HBA: "0", Name: "lun"})
	if err != nil {
		t.Fatal(err)
	}
	h.closed = make(chan struct{})
	r := &rig{k, t, d, make(chan error, 1), h.closed}
	go func() { r.ended <- d.Serve(h) }()
	return r
}

// close ends the device and looks for what went wrong unseen.
func (r *rig) close(want error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.dev.Close(ctx); err != nil {
		r.t.Error(err)
	}
	if err := <-r.ended; !errors.Is(err, want) {
		r.t.Errorf("Serve ended with %v, want %v", err, want)
	}
	<-r.closed
	if err := r.Err(); err != nil {
		r.t.Error(err)
	}
	if !r.Closed() || r.InFlight() != 0 && want == tcmu.ErrStopped {
		r.t.Errorf("mapping closed: %t, commands left: %d", r.Closed(), r.InFlight())
	}
}

func (r *rig) send(cdb, out []byte, in int) *tcmutest.Call {
	r.t.Helper()
	c, err := r.Send(cdb, out, in)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

var (
	cdbTest  = make([]byte, 6)
	cdbRead  = []byte{0x28, 0, 0, 0, 0, 1, 0, 0, 2, 0}
	cdbWrite = []byte{0x2A, 0, 0, 0, 0, 1, 0, 0, 2, 0}
)

// TestResponses holds what an initiator gets for every way to complete.
func TestResponses(t *testing.T) {
	sense := []byte{0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x24, 0, 0, 0, 0, 0}
	const size = 3*4096 + 100
	full := bytes.Repeat([]byte{0x5A}, size)
	cut := func(n int) []byte { return append(bytes.Repeat([]byte{0x5A}, n), make([]byte, size-n)...) }
	for _, row := range []struct {
		name    string
		caps    uint16
		status  byte
		sense   []byte
		readLen int
		data    []byte // what arrives
		short   bool
	}{
		{"good, all", 0, 0, nil, tcmu.All, full, false},
		{"good, exactly all", 0, 0, nil, size, full, false},
		{"good, more than asked for", 0, 0, nil, size + 1, full, false},
		{"good, a part", 0, 0, nil, 5000, full[:5000], true},
		{"good, a part, kernel knows no length", tcmutest.CapOutOfOrder, 0, nil, 5000, cut(5000), false},
		{"good, nothing: old data must not leak", 0, 0, nil, 0, cut(0), false},
		{"busy, nothing", 0, 8, nil, 0, cut(0), false},
		{"check condition", 0, 2, sense, tcmu.All, nil, false},
		{"check condition, nothing", 0, 2, sense, 0, nil, false},
		{"check condition with data", 0, 2, sense, 512, full[:512], true},
		{"check condition with all data", 0, 2, sense, size, full, true},
		{"check condition with data, kernel knows no length", tcmutest.CapOutOfOrder, 2, sense, 512, nil, false},
		{"check condition, sense longer than there is room", 0, 2, bytes.Repeat([]byte{0x70}, 252), 0, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, tcmutest.Options{Caps: row.caps, Scatter: true, Seed: 1}, &handler{serve: func(b []*tcmu.Command) {
				for _, c := range b {
					n := 0
					for _, s := range c.Data {
						n += copy(s, full[n:])
					}
					if n != size || c.Len() != size {
						t.Errorf("room for %d, %d bytes, want %d", n, c.Len(), size)
					}
					c.Complete(row.status, row.sense, row.readLen)
				}
			}})
			got := r.send(cdbRead, nil, size).Wait()
			if got.Status != row.status || got.Short != row.short || !bytes.Equal(got.Data, row.data) {
				t.Errorf("status %#x, short %t, %d bytes; want %#x, %t, %d bytes", got.Status, got.Short, len(got.Data), row.status, row.short, len(row.data))
			}
			want := make([]byte, 96)
			copy(want, row.sense)
			if !bytes.Equal(got.Sense[:], want) {
				t.Errorf("sense % x", got.Sense)
			}
			r.close(tcmu.ErrStopped)
		})
	}
}

func TestDataOutInPieces(t *testing.T) {
	s := seed(t)
	random := rand.New(rand.NewPCG(s, 1))
	var got []byte
	r := newRig(t, tcmutest.Options{Scatter: true, Seed: s}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			got = got[:0]
			for _, s := range c.Data {
				got = append(got, s...)
			}
			c.Complete(0, nil, tcmu.All)
		}
	}})
	for _, n := range []int{0, 1, 511, 4096, 4097, 40000, 64 * 4096} {
		out := make([]byte, n)
		fill(random, out)
		if a := r.send(cdbWrite, out, 0).Wait(); a.Status != 0 || !bytes.Equal(got, out) {
			t.Errorf("%d bytes: status %#x, %d bytes came", n, a.Status, len(got))
		}
	}
	r.close(tcmu.ErrStopped)
}

// TestCDBs: the copy survives what happens to the entry, whatever the operation code.
func TestCDBs(t *testing.T) {
	long := make([]byte, 260)
	long[0], long[7] = 0x7F, 252
	cdbs := [][]byte{{0x00, 5: 0}, {0x28, 9: 0}, {0x88, 15: 0}, {0xA8, 11: 0}, {0xC1, 9: 0}, {0x61, 11: 0}, {0x7F, 7: 0x18, 31: 0}, long}
	var held []*tcmu.Command
	got := map[uint16][]byte{}
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		if held = append(held, b...); len(held) < len(cdbs) {
			return
		}
		// Each response is written over an entry of a command that is still held.
		for i := len(held) - 1; i >= 0; i-- {
			got[held[i].ID()] = slices.Clone(held[i].CDB)
			held[i].Complete(2, bytes.Repeat([]byte{0xEE}, 96), tcmu.All)
		}
	}})
	var calls []*tcmutest.Call
	for i, cdb := range cdbs {
		cdb[len(cdb)-1] = byte(i + 1)
		calls = append(calls, r.send(cdb, nil, 0))
	}
	for _, c := range calls {
		c.Wait()
	}
	r.close(tcmu.ErrStopped)
	for i, cdb := range cdbs {
		if !bytes.Equal(got[calls[i].ID()], cdb) {
			t.Errorf("CDB %d: got % x, want % x", i, got[calls[i].ID()], cdb)
		}
	}
}

// TestPortions: what gathers while the handler is busy comes in portions, with at most
// one notification each; much data makes a portion of its own, but on a single processor.
func TestPortions(t *testing.T) {
	t.Run("processors", func(t *testing.T) { portionsOn(t, 2, []int{1, 8, 8, 3, 1}) })
	t.Run("processor", func(t *testing.T) { portionsOn(t, 1, []int{1, 20}) })
}

func portionsOn(t *testing.T, processors int, want []int) {
	tcmu.OnProcessors(t, processors)
	var portions []int // Serve's goroutine alone, until the ring is closed
	began, gate := make(chan struct{}, 40), make(chan struct{})
	r := newRig(t, tcmutest.Options{Blocks: 256}, &handler{serve: func(b []*tcmu.Command) {
		portions = append(portions, len(b))
		began <- struct{}{}
		<-gate
		for _, c := range b {
			c.Complete(0, nil, tcmu.All)
		}
	}})
	calls := []*tcmutest.Call{r.send(cdbTest, nil, 0)}
	<-began
	for range 18 { // while the handler is busy with the first
		calls = append(calls, r.send(cdbTest, nil, 0))
	}
	for range 2 {
		calls = append(calls, r.send(cdbRead, nil, 256<<10))
	}
	close(gate)
	for _, c := range calls {
		c.Wait()
	}
	n := r.Notifications()
	r.close(tcmu.ErrStopped)
	if !slices.Equal(portions, want) || n > len(want) {
		t.Errorf("portions of %d commands and %d notifications, want %d and at most one each", portions, n, want)
	}
}

// TestOutOfOrder completes in random order from many goroutines, over many turns of
// the ring, and holds the data of every command.
func TestOutOfOrder(t *testing.T) {
	t.Run("processors", func(t *testing.T) { outOfOrderOn(t, 2) })
	t.Run("processor", func(t *testing.T) { outOfOrderOn(t, 1) })
}

func outOfOrderOn(t *testing.T, processors int) {
	tcmu.OnProcessors(t, processors)
	s := seed(t)
	var wg sync.WaitGroup
	var dev *tcmu.Device
	ready := make(chan struct{})
	work := make(chan *tcmu.Command, 4096)
	for w := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(s, uint64(w)+100))
			<-ready
			var held []*tcmu.Command
			finish := func() {
				dev.Hold()
				random.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
				for _, c := range held {
					if c.CDB[0] == 0x2A { // returned as sense data
						sense := binary.BigEndian.AppendUint64([]byte{0x70, 0, 0}, sum(slices.Concat(c.Data...)))
						c.Complete(2, sense, tcmu.All)
						continue
					}
					from := c.CDB[2]
					for _, d := range c.Data {
						from += byte(copy(d, ramp[from:]))
					}
					c.Complete(0, nil, tcmu.All)
				}
				held = held[:0]
				dev.Flush()
			}
			for {
				c, more := next(work, finish)
				if !more {
					break
				}
				if held = append(held, c); len(held) > random.IntN(6) {
					finish()
				}
			}
			finish()
		})
	}
	r := newRig(t, tcmutest.Options{RingBytes: 4096 + 8*13, Blocks: 100, Scatter: true, Seed: s}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			work <- c
		}
	}})
	dev = r.dev
	close(ready)

	random := rand.New(rand.NewPCG(s, 2))
	type sent struct {
		call *tcmutest.Call
		out  []byte
		tag  byte
		n    int
	}
	var open []sent
	check := func(x sent) {
		a := x.call.Wait()
		if x.out != nil {
			if a.Status != 2 || binary.BigEndian.Uint64(a.Sense[3:]) != sum(x.out) {
				t.Fatalf("a write of %d bytes did not arrive as it was sent", len(x.out))
			}
			return
		}
		if a.Status != 0 || len(a.Data) != x.n {
			t.Fatalf("status %#x, %d bytes, want %d", a.Status, len(a.Data), x.n)
		}
		if bytes.Equal(a.Data, ramp[x.tag:][:x.n]) {
			return
		}
		for i, b := range a.Data {
			if b != x.tag+byte(i) {
				t.Fatalf("byte %d of a read is %#x, want %#x", i, b, x.tag+byte(i))
			}
		}
	}
	total := 5000
	if testing.Short() {
		total = 1000
	}
	for sentAll := 0; sentAll < total; {
		x := sent{tag: byte(random.Uint32()), n: random.IntN(20000)}
		cdb := []byte{0x28, 0, x.tag, 0, 0, 0, 0, 0, 0, 0}
		if random.IntN(2) == 0 {
			cdb[0] = 0x2A
			x.out = make([]byte, x.n)
			fill(random, x.out)
		}
		c, err := r.Send(cdb, x.out, x.n)
		if errors.Is(err, tcmutest.ErrFull) {
			check(open[0])
			open = open[1:]
			continue
		}
		x.call = c
		open = append(open, x)
		sentAll++
	}
	for _, x := range open {
		check(x)
	}
	r.close(tcmu.ErrStopped)
	close(work)
	wg.Wait()
}

// next takes a command, and calls idle before it waits for one. What a look at the channel's length promises, another worker may have
// taken: whoever then waits with commands in hand waits for ever, as the initiator sends no more before they end.
func next(work <-chan *tcmu.Command, idle func()) (c *tcmu.Command, more bool) {
	select {
	case c, more = <-work:
	default:
		idle()
		c, more = <-work
	}
	return c, more
}

func TestTaskManagement(t *testing.T) {
	var waiting []*tcmu.Command
	var heard []tcmu.TMR
	var order []string
	r := newRig(t, tcmutest.Options{}, &handler{
		serve: func(b []*tcmu.Command) {
			for _, c := range b {
				order = append(order, fmt.Sprint("command ", c.ID()))
			}
			waiting = append(waiting, b...)
		},
		manage: func(m tcmu.TMR) {
			heard = append(heard, m)
			order = append(order, fmt.Sprint("function ", m.Function))
			for _, c := range waiting {
				if slices.Contains(m.IDs, c.ID()) {
					c.Complete(0x40, nil, tcmu.All)
				}
			}
			waiting = slices.DeleteFunc(waiting, func(c *tcmu.Command) bool { return slices.Contains(m.IDs, c.ID()) })
		},
	})
	r.Plug()
	a, b := r.send(cdbRead, nil, 512), r.send(cdbRead, nil, 512)
	if err := r.Manage(tcmu.TMRAbortTask, b.ID()); err != nil {
		t.Fatal(err)
	}
	c := r.send(cdbRead, nil, 512)
	if err := r.Manage(tcmu.TMRLUNReset, a.ID(), c.ID()); err != nil {
		t.Fatal(err)
	}
	if err := r.Manage(tcmu.TMRLUNReset); err != nil {
		t.Fatal(err)
	}
	r.Unplug()
	for _, c := range []*tcmutest.Call{a, b, c} {
		if got := c.Wait(); got.Status != 0x40 {
			t.Errorf("status %#x, want TASK ABORTED", got.Status)
		}
	}
	r.close(tcmu.ErrStopped)
	want := fmt.Sprint([]string{"command 1", "command 2", "function 1", "command 3", "function 5", "function 5"})
	if got := fmt.Sprint(order); got != want {
		t.Errorf("order: %s, want %s", got, want)
	}
	if len(heard) != 3 || len(heard[2].IDs) != 0 {
		t.Errorf("heard %v", heard)
	}
}

func TestKeptBuffers(t *testing.T) {
	kept := make(chan *tcmu.Command, 1)
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			if !c.Keep(0, nil, tcmu.All) {
				t.Error("the kernel keeps no buffers")
			}
			kept <- c
		}
	}})
	out := bytes.Repeat([]byte{7}, 9000)
	if got := r.send(cdbWrite, out, 0).Wait(); got.Status != 0 {
		t.Fatalf("status %#x", got.Status)
	}
	c := <-kept
	if r.InFlight() != 0 || c.Len() != len(out) || c.Data[0][8999] != 7 {
		t.Error("the data of a kept command is not there")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	if err := r.dev.Quiesce(ctx); err == nil {
		t.Error("a kept command does not count as using the mapping")
	}
	cancel()
	if err := c.Free(); err != nil {
		t.Error(err)
	}
	r.close(tcmu.ErrStopped)
}

func TestKeepWithoutCapability(t *testing.T) {
	r := newRig(t, tcmutest.Options{Caps: tcmutest.CapOutOfOrder}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			if c.Keep(0, nil, tcmu.All) {
				t.Error("kept without the kernel's knowing")
			}
			c.Complete(0, nil, tcmu.All)
		}
	}})
	r.send(cdbTest, nil, 0).Wait()
	r.close(tcmu.ErrStopped)
}

// TestForeignEntries: an operation that is not known is refused, and does not keep
// others from being served.
func TestForeignEntries(t *testing.T) {
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			c.Complete(0, nil, tcmu.All)
		}
	}})
	for op := 3; op < 8; op++ {
		entry := make([]byte, 24)
		binary.NativeEndian.PutUint32(entry, uint32(24|op))
		if _, err := r.Raw(entry, 24, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.send(cdbTest, nil, 0).Wait(); got.Status != 0 {
		t.Errorf("status %#x", got.Status)
	}
	r.close(tcmu.ErrStopped)
}

// entry builds a CMD entry of 128 bytes with one segment, which rows then damage.
func entry(k *tcmutest.Kernel, id uint16) []byte {
	ne := binary.NativeEndian
	e := make([]byte, 128)
	ne.PutUint32(e, 128|1)
	ne.PutUint16(e[4:], id)
	ne.PutUint32(e[8:], 1)
	ne.PutUint64(e[24:], 128+uint64(k.Head())+112)
	ne.PutUint64(e[48:], 128+8192)
	ne.PutUint64(e[56:], 512)
	return e
}

// TestCommandsOutOfBounds: a command that points outside is answered, by nobody but
// this package, and the next one is served.
func TestCommandsOutOfBounds(t *testing.T) {
	ne := binary.NativeEndian
	for _, row := range []struct {
		name   string
		damage func(e []byte)
		ok     bool
	}{
		{"none", func([]byte) {}, true},
		{"CDB behind the ring", func(e []byte) { ne.PutUint64(e[24:], 128+8192) }, false},
		{"CDB in the mailbox", func(e []byte) { ne.PutUint64(e[24:], 0) }, false},
		{"CDB at the end of the address space", func(e []byte) { ne.PutUint64(e[24:], 1<<64-1) }, false},
		{"CDB that reaches over the end", func(e []byte) { e[112] = 0x88; ne.PutUint64(e[24:], 128+8192-8) }, true}, // reads zeros there: 6 bytes
		{"segment count beyond the entry", func(e []byte) { ne.PutUint32(e[8:], 6) }, false},
		{"segment count of all ones", func(e []byte) { ne.PutUint32(e[8:], 1<<32-1) }, false},
		{"segment in the mailbox", func(e []byte) { ne.PutUint64(e[48:], 0) }, false},
		{"segment in the ring", func(e []byte) { ne.PutUint64(e[48:], 128+8192-1) }, false},
		{"segment behind the mapping", func(e []byte) { ne.PutUint64(e[48:], 128+8192+64*4096+1) }, false},
		{"segment that reaches over the end", func(e []byte) { ne.PutUint64(e[56:], 64*4096+1) }, false},
		{"segment whose end overflows", func(e []byte) { ne.PutUint64(e[56:], 1<<64-8) }, false},
		{"segment of all the data area", func(e []byte) { ne.PutUint64(e[56:], 64*4096) }, true},
		{"empty segment at the end", func(e []byte) { ne.PutUint64(e[48:], 128+8192+64*4096); ne.PutUint64(e[56:], 0) }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			served := 0
			r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
				for _, c := range b {
					served++
					c.Complete(0, nil, tcmu.All)
				}
			}})
			e := entry(r.Kernel, 77)
			row.damage(e)
			c, err := r.Raw(e, len(e), 77)
			if err != nil {
				t.Fatal(err)
			}
			got := c.Wait()
			r.send(cdbTest, nil, 0).Wait()
			r.close(tcmu.ErrStopped)
			if row.ok != (got.Status == 0) || !row.ok && (got.Status != 2 || got.Sense[2] != 4) {
				t.Errorf("status %#x, sense % x; want good: %t", got.Status, got.Sense[:18], row.ok)
			}
			if want := map[bool]int{true: 2, false: 1}[row.ok]; served != want {
				t.Errorf("the handler saw %d commands, want %d", served, want)
			}
		})
	}
}

// TestDamagedRing: lengths that lead nowhere end Serve, and nothing else.
func TestDamagedRing(t *testing.T) {
	ne := binary.NativeEndian
	short := func(n int, lenOp uint32) []byte {
		b := make([]byte, n)
		ne.PutUint32(b, lenOp)
		return b
	}
	tmr := short(40, 40|2)
	ne.PutUint32(tmr[12:], 5)
	for _, row := range []struct {
		name  string
		entry []byte
		move  int
	}{
		{"length 0", short(16, 0|1), 16},
		{"longer than what was announced", short(16, 24), 16},
		{"longer than the ring", short(16, 1<<31), 16},
		{"command shorter than a response", short(104, 104|1), 104},
		{"task management shorter than its head", short(24, 24|2), 24},
		{"more numbers than there is room for", tmr, 40},
		{"head on no boundary", short(16, 16), 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			served := 0
			r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
				for _, c := range b {
					served++
					c.Complete(0, nil, tcmu.All)
				}
			}})
			r.Plug()
			before := r.send(cdbTest, nil, 0)
			if _, err := r.Raw(row.entry, row.move, 0); err != nil {
				t.Fatal(err)
			}
			r.Unplug()
			err := <-r.ended
			r.ended <- err
			if !errors.Is(err, tcmu.ErrRing) {
				t.Errorf("Serve ended with %v", err)
			}
			if row.name != "head on no boundary" {
				if got := before.Wait(); got.Status != 0 || served != 1 {
					t.Errorf("the command before it: status %#x, served %d", got.Status, served)
				}
			}
			r.close(tcmu.ErrRing)
		})
	}
}

// TestResetInService: when somebody resets the ring under the handler, nothing that was in it before is served once more, and an
// answer that comes later changes nothing of what is in it now. Service ends, so that the ring can be taken over anew.
func TestResetInService(t *testing.T) {
	for before := 1; before < 4; before++ {
		for _, held := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d before, one held: %v", before, held), func(t *testing.T) {
				got, served := make(chan *tcmu.Command, 1), atomic.Int32{}
				r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
					for _, c := range b {
						if served.Add(1); held && c.CDB[0] == cdbRead[0] {
							got <- c
							continue
						}
						c.Complete(0, nil, tcmu.All)
					}
				}})
				for range before {
					r.send(cdbWrite, make([]byte, 512), 0).Wait()
				}
				want, late := int32(before), (*tcmu.Command)(nil)
				if held {
					r.send(cdbRead, nil, 512)
					late = <-got
					want++
				}
				r.Reset()
				r.send(cdbTest, nil, 0)
				err := <-r.ended
				r.ended <- err
				if late != nil {
					late.Complete(0, nil, tcmu.All)
				}
				if n := served.Load(); !errors.Is(err, tcmu.ErrFault) || n != want || r.InFlight() != 1 || r.Err() != nil {
					t.Errorf("Serve ended with %v, %d commands were served, not %d, %d are in flight, and the kernel says %v", err, n, want, r.InFlight(), r.Err())
				}
				r.close(tcmu.ErrFault)
			})
		}
	}
}

// TestResetBeforeTheFirstAnswer: the tail is where a reset puts it. That the head is among what was served tells of the reset.
func TestResetBeforeTheFirstAnswer(t *testing.T) {
	for before := 2; before < 5; before++ {
		got := make(chan *tcmu.Command, before+1)
		r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
			for _, c := range b {
				got <- c
			}
		}})
		var late []*tcmu.Command
		for range before {
			r.send(cdbRead, nil, 512)
			late = append(late, <-got)
		}
		r.Reset()
		r.send(cdbTest, nil, 0)
		err := <-r.ended
		r.ended <- err
		for _, c := range late {
			c.Complete(0, nil, tcmu.All)
		}
		if !errors.Is(err, tcmu.ErrFault) || len(got) > 0 || r.InFlight() != 1 || r.Err() != nil {
			t.Errorf("%d before: Serve ended with %v, %d commands were served again, %d are in flight, and the kernel says %v", before, err, len(got), r.InFlight(), r.Err())
		}
		r.close(tcmu.ErrFault)
	}
}

// steppedLink has Serve look at the ring when the test says so, and tells when it has found nothing more.
type steppedLink struct {
	*tcmutest.Kernel
	asleep, look, stop chan struct{}
}

func (l steppedLink) Wait() error {
	select {
	case l.asleep <- struct{}{}:
	case <-l.stop:
		return io.EOF
	}
	select {
	case <-l.look:
		return nil
	case <-l.stop:
		return io.EOF
	}
}

func (l steppedLink) Stop() error { close(l.stop); return nil }

// TestResetFilledAgain: a reset is seen, too, when the kernel has put as much in the ring since as it had before, or more: initiators
// send again what they sent. So it is by who answers before the next look.
func TestResetFilledAgain(t *testing.T) {
	for _, row := range []struct{ answered, held, again int }{
		{1, 0, 1}, {1, 0, 2}, {3, 0, 3}, {1, 1, 2}, {1, 1, 3}, // the tail is elsewhere
		{0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {0, 3, 1}, {0, 3, 3}, {0, 3, 4}, // it is where a reset puts it
	} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%+v, answered before the next look: %t", row, early), func(t *testing.T) {
				k := tcmutest.New(tcmutest.Options{})
				l := steppedLink{k, make(chan struct{}), make(chan struct{}), make(chan struct{})}
				d, err := tcmu.Attach(l, tcmu.Info{})
				if err != nil {
					t.Fatal(err)
				}
				send := func(n int) {
					for range n {
						if _, err := k.Send(cdbRead, nil, 512); err != nil {
							t.Fatal(err)
						}
					}
				}
				var held []*tcmu.Command // the test's while Serve is asleep, and when it has ended
				served, hold := 0, false
				h := &handler{closed: make(chan struct{}), serve: func(b []*tcmu.Command) {
					for _, c := range b {
						if served++; hold {
							held = append(held, c)
							continue
						}
						c.Complete(0, nil, tcmu.All)
					}
				}}
				send(row.answered)
				ended := make(chan error, 1)
				go func() { ended <- d.Serve(h) }()
				<-l.asleep
				hold = true
				send(row.held)
				l.look <- struct{}{}
				<-l.asleep
				k.Reset()
				send(row.again)
				answer := func() {
					for _, c := range held {
						c.Complete(0, nil, tcmu.All)
					}
					held = nil
				}
				if early {
					answer()
				}
				l.look <- struct{}{}
				select {
				case err = <-ended:
				case <-l.asleep:
					err = errors.New("nothing: it saw no reset")
				}
				if !errors.Is(err, tcmu.ErrFault) {
					t.Errorf("Serve ended with %v", err)
				}
				answer()
				if served != row.answered+row.held || k.InFlight() != row.again || k.Err() != nil {
					t.Errorf("%d commands were served, %d are in flight, and the kernel says %v", served, k.InFlight(), k.Err())
				}
				if err := d.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestKeptOverAReset: a command that is kept, or comes to be, when somebody resets the ring can be given back, and takes nothing
// from the one that has its number now.
func TestKeptOverAReset(t *testing.T) {
	for _, before := range []bool{false, true} {
		got := make(chan *tcmu.Command, 2)
		r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
			for _, c := range b {
				if c.CDB[0] == cdbTest[0] {
					c.Complete(0, nil, tcmu.All)
					continue
				}
				got <- c
			}
		}})
		r.send(cdbTest, nil, 0).Wait()
		r.send(cdbWrite, make([]byte, 512), 0)
		c := <-got
		if before {
			c.Keep(0, nil, tcmu.All)
		}
		r.Reset()
		again := r.send(cdbWrite, make([]byte, 512), 0)
		if !before && !c.Keep(0, nil, tcmu.All) {
			t.Error("it is not kept")
		}
		if err := c.Free(); err != nil {
			t.Error(err)
		}
		r.ended <- <-r.ended
		if err := r.Err(); err != nil || r.InFlight() != 1 {
			t.Errorf("kept before: %v: the kernel says %v, %d are in flight", before, err, r.InFlight())
		}
		r.close(tcmu.ErrFault)
		r.Reset()
		if s := again.Wait().Status; s != 8 {
			t.Errorf("the command that came behind the reset has status %#x", s)
		}
	}
}

// TestCloseWaits: the mapping stays until the last command has ended.
func TestCloseWaits(t *testing.T) {
	got := make(chan *tcmu.Command, 1)
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) { got <- b[0] }})
	call := r.send(cdbWrite, make([]byte, 512), 0)
	c := <-got
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := r.dev.Close(ctx); err == nil || r.Closed() {
		t.Errorf("closed under a command: %v", err)
	}
	c.Data[0][0] = 1
	c.Complete(0, nil, tcmu.All)
	if a := call.Wait(); a.Status != 0 {
		t.Errorf("status %#x", a.Status)
	}
	<-r.closed
	if err := <-r.ended; !errors.Is(err, tcmu.ErrStopped) {
		t.Error(err)
	}
}

// TestCloseOfAStuckHandler: a handler that does not come back from Serve keeps nobody who closes the device longer than he wants to
// wait: the kernel waits for the answer to a removal without end. The rest happens when it comes back.
func TestCloseOfAStuckHandler(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		close(began)
		<-release
		b[0].Complete(0, nil, tcmu.All)
	}})
	call := r.send(cdbTest, nil, 0)
	<-began
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- r.dev.Close(ctx) }()
	select {
	case err := <-closed:
		if err == nil || r.Closed() {
			t.Errorf("closed under its handler: %v", err)
		}
	case <-time.After(patience):
		t.Error("Close waits for the handler")
	}
	close(release)
	if err := <-r.ended; !errors.Is(err, tcmu.ErrStopped) {
		t.Errorf("Serve ended with %v", err)
	}
	<-r.closed
	if a := call.Wait(); a.Status != 0 || r.Err() != nil {
		t.Errorf("status %#x, and the kernel says %v", a.Status, r.Err())
	}
}

// slowCloser is a handler whose Close does not come back before it is let go.
type slowCloser struct {
	handler
	closing, release chan struct{}
}

func (h *slowCloser) Close() {
	close(h.closing)
	<-h.release
}

// TestCloseOfAHandlerThatDoesNotClose: nor does a handler that does not come back from its own Close keep whoever closes the device, which
// has no command.
func TestCloseOfAHandlerThatDoesNotClose(t *testing.T) {
	k := tcmutest.New(tcmutest.Options{})
	d, err := tcmu.Attach(k, tcmu.Info{})
	if err != nil {
		t.Fatal(err)
	}
	h := &slowCloser{closing: make(chan struct{}), release: make(chan struct{})}
	h.serve = func(b []*tcmu.Command) {
		for _, c := range b {
			c.Complete(0, nil, tcmu.All)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(h) }()
	call, err := k.Send(cdbTest, nil, 0) // it is being served
	if err != nil {
		t.Fatal(err)
	}
	call.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- d.Close(ctx) }()
	<-h.closing
	cancel()
	select {
	case err := <-closed:
		if err == nil || k.Closed() {
			t.Errorf("closed under its handler: %v", err)
		}
	case <-time.After(patience):
		t.Error("Close waits for the handler")
	}
	close(h.release)
	if err := <-ended; !errors.Is(err, tcmu.ErrStopped) {
		t.Errorf("Serve ended with %v", err)
	}
	for end := time.Now().Add(patience); !k.Closed(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the device is not closed when its handler is")
		}
	}
}

func TestCloseBeforeServe(t *testing.T) {
	k := tcmutest.New(tcmutest.Options{})
	d, err := tcmu.Attach(k, tcmu.Info{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(context.Background()); err != nil || !k.Closed() {
		t.Errorf("%v, mapping closed: %t", err, k.Closed())
	}
	h := &handler{closed: make(chan struct{})}
	if err := d.Serve(h); !errors.Is(err, tcmu.ErrStopped) {
		t.Errorf("Serve ended with %v", err)
	}
	<-h.closed
}

func TestCompletedTwice(t *testing.T) {
	said := make(chan any, 1)
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		b[0].Complete(0, nil, tcmu.All)
		defer func() { said <- recover() }()
		b[0].Complete(0, nil, tcmu.All)
	}})
	r.send(cdbTest, nil, 0).Wait()
	if <-said == nil {
		t.Error("a second completion, which would break the ring, was taken")
	}
	r.close(tcmu.ErrStopped)
}

// brokenLink fails to notify.
type brokenLink struct{ *tcmutest.Kernel }

func (brokenLink) Notify() error { return io.ErrClosedPipe }

func TestNotifyFails(t *testing.T) {
	k := tcmutest.New(tcmutest.Options{})
	d, err := tcmu.Attach(brokenLink{k}, tcmu.Info{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Send(cdbTest, nil, 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- d.Serve(&handler{closed: make(chan struct{}), serve: func(b []*tcmu.Command) { b[0].Complete(0, nil, tcmu.All) }})
	}()
	time.Sleep(5 * time.Millisecond)
	if _, err := k.Send(cdbTest, nil, 0); err != nil { // Serve finds out at its next turn
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Serve ended with %v", err)
	}
}

// TestNoAllocation: once warm, a command allocates nothing.
func TestNoAllocation(t *testing.T) {
	r := newRig(t, tcmutest.Options{}, &handler{serve: func(b []*tcmu.Command) {
		for _, c := range b {
			if c.Ctx == nil {
				c.Ctx = new(int)
			}
			c.Complete(0, nil, tcmu.All)
		}
	}})
	defer r.close(tcmu.ErrStopped)
	got := testing.AllocsPerRun(200, func() { r.send(cdbTest, nil, 0).Wait() })
	if got > 2.5 { // the fake kernel's Call and its channel
		t.Errorf("%.1f allocations for a command, of which the fake kernel makes 2", got)
	}
}
