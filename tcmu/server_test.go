package tcmu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// patience is how long a test waits before it calls a thing missing: a busy machine is no failure.
const patience = 2 * time.Minute

// world is a kernel in a folder, its netlink messages, and a diary of what happened
// in which order.
type world struct {
	t    *testing.T
	root tree

	mu      sync.Mutex
	diary   []string
	events  chan event
	expired chan struct{}
	release chan struct{} // closed when handlers that are stuck shall go on
	answers chan string
	links   map[uint32]*memoryLink
	failing map[string]error // by what fails
	over    atomic.Bool      // the test has ended: what hung may go on, over files that are gone
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, root: tree(t.TempDir()), events: make(chan event, 100), expired: make(chan struct{}), release: make(chan struct{}),
		answers: make(chan string, 100), links: map[uint32]*memoryLink{}, failing: map[string]error{}}
	t.Cleanup(func() { w.over.Store(true) })
	w.file("sys/module/target_core_user/parameters/block_netlink", "0")
	w.file("sys/module/target_core_user/parameters/reset_netlink", "0")
	return w
}

func (w *world) file(path, value string) {
	full := filepath.Join(string(w.root), path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o755), os.WriteFile(full, []byte(value), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) value(path string) string {
	b, err := os.ReadFile(filepath.Join(string(w.root), path))
	if err != nil && !w.over.Load() {
		w.t.Error(err)
	}
	return string(b)
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.diary = append(w.diary, fmt.Sprintf(format, args...))
}

func (w *world) notes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.diary)
}

// device makes what the kernel shows of a device.
func (w *world) device(minor uint32, name string) event {
	full := "tcm-user/0/" + name
	w.file(fmt.Sprintf("sys/class/uio/uio%d/name", minor), full+"\n")
	dir := w.folder(name)
	for file, value := range map[string]string{"attrib/dev_size": "1048576\n", "attrib/hw_block_size": "512\n",
		"attrib/emulate_write_cache": "0\n", "attrib/tmr_notification": "0\n", "action/block_dev": "", "action/reset_ring": ""} {
		w.file(filepath.Join(dir, file), value)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[minor] = newMemoryLink()
	return event{id: minor + 100, minor: minor, name: full}
}

func (w *world) folder(name string) string {
	lun, _, _ := strings.Cut(name, "/")
	return "sys/kernel/config/target/core/user_0/" + lun
}

// The messenger.

func (w *world) subscribe() error {
	w.note("subscribe with block_netlink=%s reset_netlink=%s", w.value("sys/module/target_core_user/parameters/block_netlink"),
		w.value("sys/module/target_core_user/parameters/reset_netlink"))
	return w.failing["subscribe"]
}

func (w *world) unsubscribe() error {
	w.note("unsubscribe with block_netlink=%s", w.value("sys/module/target_core_user/parameters/block_netlink"))
	return nil
}

func (w *world) receive() ([]event, error) {
	select {
	case e := <-w.events:
		return []event{e}, nil
	default:
	}
	select {
	case e := <-w.events:
		return []event{e}, nil
	case <-w.expired:
		return nil, os.ErrDeadlineExceeded
	}
}

func (w *world) deadline(time.Time) error {
	w.note("last events with block_netlink=%s", w.value("sys/module/target_core_user/parameters/block_netlink"))
	close(w.expired)
	return nil
}

func (w *world) reply(e event, status int32) error {
	w.answers <- fmt.Sprintf("%d of %d: %d", e.cmd, e.id, status)
	return w.failing["reply"]
}

func (w *world) close() error { w.note("netlink closed"); return nil }

func (w *world) answer() string {
	w.t.Helper()
	select {
	case a := <-w.answers:
		return a
	case <-time.After(patience):
		w.t.Fatal("the kernel gets no answer: whoever made the request hangs")
		return ""
	}
}

func (w *world) open(minor uint32) (Link, error) {
	if err := w.failing[fmt.Sprintf("open %d", minor)]; err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.links[minor]
	if l == nil {
		return nil, syscall.ENOENT
	}
	return l, nil
}

// memoryLink is an empty ring.
type memoryLink struct {
	mem  []byte
	stop chan struct{}
	once sync.Once
	gone chan struct{}
	lost chan struct{} // closed when the device is gone
	wake chan struct{}
	// damaged: what the first Wait announces is nothing that a kernel writes.
	damaged bool
	closed  func()
}

func newMemoryLink() *memoryLink {
	l := &memoryLink{mem: make([]byte, 4096), stop: make(chan struct{}), gone: make(chan struct{}), lost: make(chan struct{}), wake: make(chan struct{}, 1)}
	mb := mailboxOf(l.mem)
	mb.version, mb.flags, mb.cmdrOff, mb.cmdrSize = 2, 15, 128, 1024
	return l
}

// send puts a command without data into the ring, which nobody serves yet.
func (l *memoryLink) send() {
	mb := mailboxOf(l.mem)
	q := (*cmdRequest)(unsafe.Pointer(&l.mem[mb.cmdrOff]))
	q.lenOp, q.cmdID, q.cdbOff = uint32(responseSize)|opCmd, 1, uint64(mb.cmdrOff)+uint64(requestSize)
	mb.cmdHead = uint32(responseSize)
}

func (l *memoryLink) Memory() []byte { return l.mem }
func (l *memoryLink) Wait() error {
	if l.damaged {
		mailboxOf(l.mem).cmdHead = 4
		return nil
	}
	select {
	case <-l.stop:
		return os.ErrDeadlineExceeded
	case <-l.lost:
		return syscall.EIO
	case <-l.wake:
		mailboxOf(l.mem).cmdHead = 4
		return nil
	}
}
func (l *memoryLink) Notify() error { return nil }
func (l *memoryLink) Stop() error   { l.once.Do(func() { close(l.stop) }); return nil }
func (l *memoryLink) Close() error {
	close(l.gone)
	if l.closed != nil {
		l.closed()
	}
	return nil
}

// testSubtype opens devices as their configuration strings say.
type testSubtype struct{ w *world }

func (testSubtype) Name() string     { return "test" }
func (testSubtype) Describe() string { return "what it shall do" }
func (testSubtype) Check(config string) error {
	if config == "bad" {
		return errors.New("bad is no good")
	}
	return nil
}

func (s testSubtype) Open(d *Device) (Handler, error) {
	i := d.Info()
	s.w.note("open %s %d bytes in blocks of %d", i.Config, i.Size, i.BlockSize)
	switch i.Config {
	case "bad":
		return nil, errors.New("bad is no good")
	case "full":
		return nil, fmt.Errorf("the pool is full: %w", syscall.ENOSPC)
	case "fixed":
		return fixedHandler{s.w, i.Name}, nil
	case "stuck":
		return stuckHandler{fixedHandler{s.w, i.Name}}, nil
	}
	return testHandler{fixedHandler{s.w, i.Name}}, nil
}

type fixedHandler struct {
	w    *world
	name string
}

func (fixedHandler) Serve([]*Command) {}
func (h fixedHandler) Close()         { h.w.note("close %s", h.name) }

// stuckHandler does not come back before it is let go.
type stuckHandler struct{ fixedHandler }

func (h stuckHandler) Serve(batch []*Command) {
	h.w.note("stuck in %s", h.name)
	<-h.w.release
	for _, c := range batch {
		c.Complete(0, nil, All)
	}
}

type testHandler struct{ fixedHandler }

func (testHandler) Manage(TMR) {}
func (h testHandler) Reconfigure(c Change) error {
	h.w.note("change %s: %s", h.name, c)
	if c.Size != nil && *c.Size > 1<<40 {
		return fmt.Errorf("too large: %w", syscall.ENOSPC)
	}
	return nil
}

// run starts a server; stop ends it.
func (w *world) run(opt Options) (s *Server, stop func() error) {
	w.t.Helper()
	opt.Subtypes = []Subtype{testSubtype{w}}
	s, err := start(opt, w.root, w, w.open)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- s.Run(ctx) }()
	return s, func() error { cancel(); return <-end }
}

func (w *world) tell(cmd uint8, e event, c Change) string {
	w.t.Helper()
	e.cmd, e.change = cmd, c
	w.events <- e
	return w.answer()
}

func equalDiary(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("diary:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestOtherFabrics: a device is told by the target of the link from a fabric's LUN. Folders of the fabric that is left out, and of
// backstores, are not read.
func TestOtherFabrics(t *testing.T) {
	root := tree(t.TempDir())
	folder := root.folder(Info{HBA: "1", Name: "disk"})
	if _, err := root.otherFabrics(folder, "iscsi"); err == nil {
		t.Error("an answer without configfs")
	}
	at := func(path ...string) string {
		return root.path(append([]string{"sys/kernel/config/target"}, path...)...)
	}
	lun := func(to string, path ...string) {
		dir := at(path...)
		if err := os.MkdirAll(filepath.Join(dir, "statistics"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "alua_tg_pt_gp"), nil, 0o644), os.Symlink("../../../../../../target/core/"+to, filepath.Join(dir, "0a1b2c3d"))); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(want ...string) {
		t.Helper()
		if got, err := root.otherFabrics(folder, "iscsi"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	lun("user_1/disk", "iscsi/naa.5001/tpgt_1/lun/lun_0")
	lun("user_1/disk", "core/user_1/disk/tpgt_1/lun/lun_0")
	lun("user_0/disk", "loopback/naa.5001/tpgt_1/lun/lun_0")
	lun("user_1/disk2", "qla2xxx/naa.5001/tpgt_1/lun/lun_0")
	lun("user_1/disk", "qla2xxx/naa.5001/tpgt_1/acls/naa.5002/lun_0")
	answers()
	lun("user_1/disk", "vhost/naa.5001/tpgt_1/lun/lun_3")
	lun("user_1/disk", "loopback/naa.5001/tpgt_2/lun/lun_1")
	answers("loopback", "vhost")
	if err := os.Remove(at("vhost/naa.5001/tpgt_1/lun/lun_3/0a1b2c3d")); err != nil {
		t.Fatal(err)
	}
	answers("loopback")
}

// TestLifeOfADevice: every request is answered, with what the handler said.
func TestLifeOfADevice(t *testing.T) {
	w := newWorld(t)
	s, stop := w.run(Options{})
	lun := w.device(3, "lun/test/good")
	cache, size, tooMuch, same, config, foreign := true, uint64(2<<20), uint64(1<<50), uint64(1<<20), "test/good", "other/good"
	for _, row := range []struct {
		name   string
		cmd    uint8
		change Change
		want   string
	}{
		{"added", 1, Change{}, "1 of 103: 0"},
		{"added again", 1, Change{}, "1 of 103: -17"},
		{"the configuration that it has", 3, Change{Config: &config}, "3 of 103: 0"},
		{"the size that it has", 3, Change{Size: &same}, "3 of 103: 0"},
		{"write cache", 3, Change{WriteCache: &cache}, "3 of 103: 0"},
		{"write cache again", 3, Change{WriteCache: &cache}, "3 of 103: 0"},
		{"larger", 3, Change{Size: &size}, "3 of 103: 0"},
		{"too large", 3, Change{Size: &tooMuch}, "3 of 103: -28"},
		{"another subtype", 3, Change{Config: &foreign}, "3 of 103: -22"},
		{"removed", 2, Change{}, "2 of 103: 0"},
		{"removed again", 2, Change{}, "2 of 103: 0"},
		{"changed when it is gone", 3, Change{Size: &size}, "3 of 103: -19"},
	} {
		if got := w.tell(row.cmd, lun, row.change); got != row.want {
			t.Errorf("%s: answered %s, want %s", row.name, got, row.want)
		}
	}
	if len(s.Devices()) != 0 {
		t.Errorf("devices are left: %v", s.Devices())
	}
	if w.value(w.folder("lun")+"/attrib/tmr_notification") != "1" {
		t.Error("task management was not asked for")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	equalDiary(t, w.notes(),
		"subscribe with block_netlink=1 reset_netlink=1",
		"open good 1048576 bytes in blocks of 512",
		"change lun: write cache true",
		"change lun: size 2097152",
		"change lun: size 1125899906842624",
		"close lun",
		"last events with block_netlink=1",
		"unsubscribe with block_netlink=1",
		"netlink closed")
	if v := w.value("sys/module/target_core_user/parameters/block_netlink"); v != "0" {
		t.Errorf("the kernel is left with block_netlink=%s", v)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.failing["open 5"] = syscall.EBUSY
	_, stop := w.run(Options{})
	size := uint64(5)
	for _, row := range []struct {
		name string
		e    event
		want string
	}{
		{"bad configuration", w.device(1, "a/test/bad"), "1 of 101: -22"},
		{"no space", w.device(2, "b/test/full"), "1 of 102: -28"},
		{"a subtype that nobody serves", w.device(3, "c/qcow//x"), "1 of 103: -2"},
		{"no subtype", w.device(4, "d"), "1 of 104: -2"},
		{"another process has it", w.device(5, "e/test/good"), "1 of 105: -16"},
		{"not in configfs", event{id: 106, minor: 6, name: "tcm-user/0/f/test/good"}, "1 of 106: -2"},
		{"a name that is none", event{id: 107, minor: 7, name: "uio"}, "1 of 107: -2"},
	} {
		if got := w.tell(1, row.e, Change{}); got != row.want {
			t.Errorf("%s: answered %s, want %s", row.name, got, row.want)
		}
		// The kernel gives up the device and says so.
		if got, want := w.tell(2, row.e, Change{}), fmt.Sprintf("2 of %d: 0", row.e.id); got != want {
			t.Errorf("%s: answered %s, want %s", row.name, got, want)
		}
	}
	fixed := w.device(8, "h/test/fixed")
	w.tell(1, fixed, Change{})
	if got := w.tell(3, fixed, Change{Size: &size}); got != "3 of 108: -95" {
		t.Errorf("a change without a Reconfigurer: answered %s", got)
	}
	for minor, l := range w.links {
		select {
		case <-l.gone:
		default:
			if minor == 1 || minor == 2 {
				t.Errorf("the mapping of device %d, which was refused, is left", minor)
			}
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestManyAtOnce: one that is slow to open holds up nobody, and none is lost.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	s, stop := w.run(Options{})
	want := map[string]bool{}
	for i := range uint32(60) {
		e := w.device(i, fmt.Sprintf("lun%d/test/good", i))
		e.cmd = 1
		w.events <- e
		want[fmt.Sprintf("1 of %d: 0", i+100)] = true
	}
	for range 60 {
		delete(want, w.answer())
	}
	if len(want) != 0 || len(s.Devices()) != 60 {
		t.Errorf("no answer to %v; %d devices", want, len(s.Devices()))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for minor, l := range w.links {
		select {
		case <-l.gone:
		default:
			t.Errorf("device %d was not closed", minor)
		}
		if v := w.value(fmt.Sprintf("%s/action/block_dev", w.folder(fmt.Sprintf("lun%d", minor)))); v != "0" {
			t.Errorf("device %d is left with block_dev=%s", minor, v)
		}
	}
}

// TestTakeOver: devices that exist are taken over before the kernel is let go on,
// and one that cannot be does not keep the others.
func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	w.device(0, "a/test/good")
	w.device(1, "b/qcow/x")
	w.device(2, "c/test/bad")
	w.device(3, "d/test/good")
	w.device(4, "e/test/good")
	w.failing["open 3"] = syscall.EBUSY
	w.file("sys/class/uio/uio9/name", "uio_pci_generic\n")
	w.file("sys/class/uio/README", "")
	s, stop := w.run(Options{})
	var names []string
	for _, d := range s.Devices() {
		names = append(names, d.String())
	}
	if got := fmt.Sprint(names); got != "[tcm-user/0/a tcm-user/0/e]" {
		t.Errorf("taken over: %s", got)
	}
	for name, want := range map[string]string{"a": "1/0", "b": "/", "c": "1/0", "d": "/0", "e": "1/0"} {
		if got := w.value(w.folder(name)+"/action/reset_ring") + "/" + w.value(w.folder(name)+"/action/block_dev"); got != want {
			t.Errorf("%s: reset_ring/block_dev is %s, want %s", name, got, want)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestDamagedRing: it is reset and served again, but not for ever.
func TestDamagedRing(t *testing.T) {
	for _, row := range []struct {
		name string
		bad  int // how many rings of the device are damaged
		want int // openings
	}{
		{"once", 1, 2},
		{"as often as is borne", maxRepairs, 4},
		{"always", 1000, 4},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			s, stop := w.run(Options{})
			e := w.device(1, "lun/test/good")
			settled := make(chan struct{})
			links := 0
			var next func()
			next = func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				l := newMemoryLink()
				links++
				l.damaged = links <= row.bad
				l.closed = next
				w.links[1] = l
				if links == min(row.bad, maxRepairs)+1 {
					close(settled)
				}
			}
			next()
			if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
				t.Fatal(got)
			}
			select {
			case <-settled:
			case <-time.After(patience):
				t.Fatal("the device is not served again")
			}
			// Removal comes after the last repair, whatever became of that.
			if got := w.tell(2, e, Change{}); got != "2 of 101: 0" {
				t.Error(got)
			}
			opened := 0
			for _, n := range w.notes() {
				if strings.HasPrefix(n, "open good") {
					opened++
				}
			}
			if opened != row.want {
				t.Errorf("opened %d times, want %d", opened, row.want)
			}
			for file, want := range map[string]string{"reset_ring": "1", "block_dev": "0"} {
				if got := w.value(w.folder("lun") + "/action/" + file); got != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
			if left := s.Devices(); len(left) != 0 {
				t.Errorf("devices left: %v", left)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDamagedRingNowAndThen: a ring that is reset now and then, which somebody may do by hand, is served again each time.
func TestDamagedRingNowAndThen(t *testing.T) {
	w := newWorld(t)
	s, stop := w.run(Options{})
	e := w.device(1, "lun/test/good")
	if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
		t.Fatal(got)
	}
	for n := range 3 * maxRepairs {
		w.mu.Lock()
		before, link := w.links[1], newMemoryLink()
		w.links[1] = link
		w.mu.Unlock()
		before.wake <- struct{}{}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			if list := s.Devices(); len(list) == 1 && list[0].link == link && list[0].served() {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the device is not served again behind reset %d", n+1)
			}
		}
		s.mu.Lock()
		s.repairs[1].last = s.repairs[1].last.Add(-repairMemory)
		s.mu.Unlock()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestDamagedRingOfARemovedDevice: a device whose folder is gone cannot be blocked, and is closed all the same: what it has is for
// the next one.
func TestDamagedRingOfARemovedDevice(t *testing.T) {
	w := newWorld(t)
	s, stop := w.run(Options{})
	e := w.device(1, "lun/test/good")
	link := w.links[1]
	if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
		t.Fatal(got)
	}
	if err := os.RemoveAll(filepath.Join(string(w.root), w.folder("lun"))); err != nil {
		t.Fatal(err)
	}
	link.wake <- struct{}{}
	for end := time.Now().Add(patience); len(s.Devices()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the device is still listed")
		}
	}
	if got := w.tell(2, e, Change{}); got != "2 of 101: 0" {
		t.Error(got)
	}
	select {
	case <-link.gone:
	default:
		t.Error("the device is still open")
	}
	if n := w.notes(); !slices.Contains(n, "close lun") {
		t.Errorf("diary %q", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestLostDevices: the end of a device that nobody told of does not keep its number from the next one, nor what it had.
func TestLostDevices(t *testing.T) {
	for name, step := range map[string]func(*world, *Server){
		"noticed before": func(w *world, s *Server) {
			close(w.links[1].lost)
			for end := time.Now().Add(patience); len(s.Devices()) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					w.t.Fatal("a device that is gone is still listed")
				}
			}
		},
		"at the same time":   func(w *world, s *Server) { close(w.links[1].lost) },
		"noticed not at all": func(*world, *Server) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, stop := w.run(Options{})
			if got := w.tell(1, w.device(1, "a/test/good"), Change{}); got != "1 of 101: 0" {
				t.Fatal(got)
			}
			before := w.links[1]
			step(w, s)
			if got := w.tell(1, w.device(1, "b/test/good"), Change{}); got != "1 of 101: 0" {
				t.Errorf("the next one is answered %s", got)
			}
			<-before.gone
			list := s.Devices()
			if len(list) != 1 || list[0].Info().Name != "b" || !slices.Contains(w.notes(), "close a") {
				t.Errorf("served are %v; diary %q", list, w.notes())
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStopWithoutService: a device whose ring was given up holds up no end.
func TestStopWithoutService(t *testing.T) {
	w := newWorld(t)
	s, stop := w.run(Options{CloseTimeout: time.Hour})
	e := w.device(1, "lun/test/good")
	opened := make(chan struct{}, 100)
	var next func()
	next = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		l := newMemoryLink()
		l.damaged, l.closed = true, next
		w.links[1] = l
		opened <- struct{}{}
	}
	next()
	if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
		t.Fatal(got)
	}
	for range 1 + maxRepairs {
		<-opened
	}
	for {
		s.mu.Lock()
		givenUp := s.repairs[1] != nil && s.repairs[1].count > maxRepairs
		s.mu.Unlock()
		if givenUp {
			break
		}
		time.Sleep(time.Millisecond)
	}
	end := make(chan error, 1)
	go func() { end <- stop() }()
	select {
	case err := <-end:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the server waits for a device that nobody serves")
	}
}

// TestStopWithAStuckHandler: a handler that does not come back, of a device that is there or of one that was removed, holds up the
// end of a server no longer than it may, and what the server has is let go.
func TestStopWithAStuckHandler(t *testing.T) {
	for name, removed := range map[string]bool{"there": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			_, stop := w.run(Options{CloseTimeout: 20 * time.Millisecond, grace: patience})
			e := w.device(1, "lun/test/stuck")
			link := w.links[1]
			link.send()
			if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
				t.Fatal(got)
			}
			for end := time.Now().Add(patience); !slices.Contains(w.notes(), "stuck in lun"); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the command does not come")
				}
			}
			if removed {
				if got := w.tell(2, e, Change{}); got != "2 of 101: 0" {
					t.Error(got)
				}
			}
			end := make(chan error, 1)
			go func() { end <- stop() }()
			select {
			case err := <-end:
				if err == nil {
					t.Error("the server says nothing of the handler")
				}
			case <-time.After(patience):
				t.Error("the server waits for the handler")
			}
			if v := w.value("sys/module/target_core_user/parameters/block_netlink"); v != "0" || !slices.Contains(w.notes(), "netlink closed") {
				t.Errorf("the kernel is left with block_netlink=%s; diary %q", v, w.notes())
			}
			close(w.release)
			<-link.gone
		})
	}
}

// TestLastEvents: what the kernel had sent when the end began is answered.
func TestLastEvents(t *testing.T) {
	w := newWorld(t)
	_, stop := w.run(Options{})
	e := w.device(1, "a/test/good")
	if got := w.tell(1, e, Change{}); got != "1 of 101: 0" {
		t.Fatal(got)
	}
	e.cmd = 2
	end := make(chan error, 1)
	w.events <- e
	go func() { end <- stop() }()
	if got := w.answer(); got != "2 of 101: 0" {
		t.Error(got)
	}
	if err := <-end; err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	for _, row := range []struct {
		name  string
		make  func(*world)
		names []string
		want  string
	}{
		{"netlink", func(w *world) { w.failing["subscribe"] = syscall.EPERM }, []string{"test"}, "operation not permitted"},
		{"two of one name", func(*world) {}, []string{"test", "test"}, "twice"},
		{"no name", func(*world) {}, []string{""}, "no name"},
		{"a name that D-Bus does not take", func(*world) {}, []string{"my-disk"}, "characters"},
	} {
		w := newWorld(t)
		row.make(w)
		var list []Subtype
		for _, n := range row.names {
			list = append(list, named{testSubtype{w}, n})
		}
		_, err := start(Options{Subtypes: list}, w.root, w, w.open)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v", row.name, err)
		}
		if v := w.value("sys/module/target_core_user/parameters/block_netlink"); v != "0" {
			t.Errorf("%s: the kernel is left with block_netlink=%s", row.name, v)
		}
	}
}

type named struct {
	testSubtype
	name string
}

func (n named) Name() string { return n.name }

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tcmu.lock")
	a, err := takeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := takeLock(path); !errors.Is(err, ErrOtherServer) || !strings.Contains(err.Error(), "tcmu-runner") {
		t.Errorf("a second server: %v", err)
	}
	a.release()
	b, err := takeLock(path)
	if err != nil {
		t.Errorf("after release: %v", err)
	}
	b.release()
}

// TestLockOfNobody: a lock that is to stay until the process ends does, though nothing refers to it any more.
func TestLockOfNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tcmu.lock")
	if _, err := takeLock(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // what is collected is closed by a goroutine of its own
	}
	if _, err := takeLock(path); !errors.Is(err, ErrOtherServer) {
		t.Errorf("a second server: %v", err)
	}
}
