package admin

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/store"
	"github.com/arraysim/arraysim/internal/store/rados"
	"github.com/arraysim/arraysim/internal/store/rados/librados"
)

// homeName is the file of a data folder that says which one it is, for an array in a pool whose log is there.
const homeName = "rados.home"

// validateRados checks the section rados.
func (c *Config) validateRados() error {
	r := c.Rados
	switch {
	case c.Store != storeRados && r != nil:
		return c.src.at("rados", "there is a section rados, but the store is %s; write store: rados, or leave the section out", c.Store)
	case c.Store != storeRados:
		return nil
	case r == nil || r.Pool == "":
		return c.src.at("store", "store is rados, but there is no pool; add  rados: { pool: NAME }")
	case r.Standby && r.Log != rados.LogReplicated:
		return c.src.at("rados.standby", "a log that is %s is lost with its node, so no other node can take over; write log: replicated, or leave standby out", r.Log)
	case strings.ContainsAny(r.Namespace+r.Pool+r.User, "\x00\n"):
		return c.src.at("rados", "a name has an invalid character; remove it")
	case c.AIO != aioAuto:
		return c.src.at("aio", "aio is %q, but mdisks in a pool wait for no disk of this machine; leave it out", c.AIO)
	}
	return nil
}

// idName is the file of a data folder that names the array in a pool that it belongs to.
const idName = "rados.array"

// leaseTime is for how long nobody else takes an array from an owner that nobody hears of.
const leaseTime = 10e9

// radosReserve is what is kept in the pool for metadata to find when it is full: two batches of a checkpoint.
const radosReserve = 32 << 20

// radosHooks are what the daemon does while it opens an array in a pool, and when it has lost one.
type radosHooks struct {
	notice   func(line string)
	lost     func(error) // another process has taken the array over
	canceled <-chan struct{}
	// begins is called once the data folder is locked, and returns who hears of what the process waits for.
	begins  func(*folder) func(rados.Standby)
	eager   func() bool   // the array is about to change its owner
	connect radosConnects // nil: librados
}

// radosConnects connects to the pool of a configuration.
type radosConnects func(*RadosConfig) (rados.Cluster, error)

// connectCluster is the one of librados.
func connectCluster(c *RadosConfig) (rados.Cluster, error) {
	return librados.Connect(librados.Config{Conf: c.Conf, User: c.User, Keyring: c.Keyring, Pool: c.Pool, Namespace: c.Namespace})
}

// connectUntil connects to a pool, which may take 20 s, unless that is canceled. Then the connection goes on, on its own: the
// process is about to end.
func connectUntil(canceled <-chan struct{}, connect func() (rados.Cluster, error)) (rados.Cluster, error) {
	type answer struct {
		cluster rados.Cluster
		err     error
	}
	ch := make(chan answer, 1)
	go func() {
		c, err := connect()
		ch <- answer{c, err}
	}()
	select {
	case a := <-ch:
		return a.cluster, a.err
	case <-canceled:
		return nil, rados.ErrCanceled
	}
}

// onlyCanceled reports whether an error says no more than that a start was canceled: every cause of it is that.
func onlyCanceled(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Unwrap() []error }:
		list := e.Unwrap()
		return len(list) > 0 && !slices.ContainsFunc(list, func(err error) bool { return !onlyCanceled(err) })
	}
	return err == rados.ErrCanceled || err == errStopped || onlyCanceled(errors.Unwrap(err))
}

// isClosed reports whether a channel is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// openRados locks the data folder and opens the array in the pool.
func openRados(x block.Executor, cfg *Config, hooks radosHooks) (*folder, error) {
	path, c := cfg.Data, cfg.Rados
	if hooks.connect == nil {
		if err := librados.Available(); err != nil {
			return nil, fmt.Errorf("store: rados: %w", err)
		}
		hooks.connect = connectCluster
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w; choose another with --data", err)
	}
	f := &folder{path: path, kind: storeRados}
	if err := f.checkKind(); err != nil {
		return nil, err
	}
	self := thisProcess()
	self.Link = cfg.linkAddress()
	opt := rados.Options{Log: c.Log, Reserve: radosReserve, Self: self, Dead: isDead, Notice: hooks.notice, Lost: hooks.lost, Standby: c.Standby, Eager: hooks.eager,
		Cancel: func() bool { return isClosed(hooks.canceled) }, Wall: func() int64 { return time.Now().UnixNano() }}
	if cfg.Node != nil {
		opt.Name = fmt.Sprint(cfg.Node.ID)
	}
	if c.Log == rados.LogReplicated {
		opt.Lease, opt.Clock = leaseTime, sinceBoot
		cache, err := f.cacheSize(cfg)
		if err != nil {
			return nil, err
		}
		opt.Region, opt.Layout = array.Options{CacheBytes: int64(cache)}.Region()
	}
	opt.Cookie, opt.NewID = randomName(), randomName()
	b, err := os.ReadFile(filepath.Join(path, idName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	opt.ID = strings.TrimSpace(string(b))
	if c.Log == rados.LogLocal {
		var files *store.Files
		if files, err = store.OpenFiles(x, path, store.FilesOptions{NoRing: true, Notice: hooks.notice}); err != nil {
			return nil, err
		}
		opt.Local = files
		if opt.Home, err = f.home(opt.Self.Host); err != nil {
			return nil, inOneLine(fmt.Errorf("data folder: %w", err), files.Close())
		}
	} else if err = f.flock(); err != nil {
		return nil, err
	}
	opt.Waits = hooks.begins(f)
	cluster, err := connectUntil(hooks.canceled, func() (rados.Cluster, error) {
		return hooks.connect(c)
	})
	if err == nil {
		var s *rados.Store
		if s, err = rados.Open(x, cluster, opt); err == nil {
			f.store = s
			if opt.ID == "" {
				err = replaceFile(filepath.Join(path, idName), []byte(s.ID()+"\n"))
			}
			if err == nil {
				return f, nil
			}
			return nil, inOneLine(fmt.Errorf("data folder: %w", err), f.close())
		}
		err = fmt.Errorf("pool %s: %w", c.Pool, err)
	}
	if opt.Local != nil {
		err = inOneLine(err, opt.Local.Close())
	}
	if f.lock != nil {
		err = inOneLine(err, f.lock.Close())
	}
	return nil, fmt.Errorf("store: rados: %w", err)
}

// inOneLine returns an error, and what failed behind it.
func inOneLine(err, more error) error {
	if more == nil {
		return err
	}
	return fmt.Errorf("%w; and %w", err, more)
}

// randomName returns a name that nothing else has.
func randomName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// sinceBoot is a clock for leases: nanoseconds since the machine has started, those that it has slept as well.
func sinceBoot() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 1<<63 - 1 // no lease is good
	}
	return t.Nano()
}

// home returns which data folder this is: where it was made, and a number.
func (f *folder) home(host string) (string, error) {
	path := filepath.Join(f.path, homeName)
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	var id [8]byte
	rand.Read(id[:])
	abs, err := filepath.Abs(f.path)
	if err != nil {
		return "", err
	}
	home := fmt.Sprintf("%s:%s (%x)", host, abs, id)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(home + "\n")
	return home, errors.Join(err, file.Sync(), file.Close())
}

// readLine returns the first line of a file, "" if it cannot be read.
func readLine(path string) string {
	b, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

// startOf returns when a process started, in ticks since the machine did, or that there is no such process. Neither says
// that it cannot be seen, as one of another user where /proc is mounted so.
func startOf(pid int) (ticks string, gone bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", unix.Kill(pid, 0) == unix.ESRCH
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	switch {
	case len(fields) < 20:
		return "", false
	case fields[0] == "Z":
		return "", true
	}
	return fields[19], false
}

// thisProcess describes this process to who finds its array taken.
func thisProcess() rados.Owner {
	host, _ := os.Hostname()
	o := rados.Owner{Host: host, Machine: readLine("/etc/machine-id"), Boot: readLine("/proc/sys/kernel/random/boot_id"), PID: os.Getpid()}
	space, _ := os.Readlink("/proc/self/ns/pid")
	start, _ := startOf(o.PID)
	o.Process = space + " " + start
	return o
}

// isDead reports whether a process is known not to run any more: it was one of this machine, which was started
// anew since, or which has no such process. Of other machines nobody knows that here.
func isDead(o rados.Owner) bool {
	self := thisProcess()
	if o.Machine == "" || o.Machine != self.Machine || o.Host != self.Host || o.Boot == "" || self.Boot == "" {
		return false
	}
	if o.Boot != self.Boot {
		return true
	}
	space, start, ok := strings.Cut(o.Process, " ")
	mine, _, _ := strings.Cut(self.Process, " ")
	if !ok || space == "" || space != mine || start == "" {
		return false
	}
	now, gone := startOf(o.PID)
	return gone || now != "" && now != start
}

// flock locks a data folder whose store does not.
func (f *folder) flock() error {
	lock, err := os.OpenFile(filepath.Join(f.path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fmt.Errorf("data folder %s is in use by another arraysim: %w; stop that one, or choose another with --data", f.path, err)
	}
	f.lock = lock
	return nil
}

// checkKind refuses a data folder whose array is kept in another kind of store.
func (f *folder) checkKind() error {
	s, err := f.readSummary()
	switch {
	case err != nil:
		return err
	case s.Store == storeRados && f.kind != storeRados:
		return fmt.Errorf("the array of the data folder %s is in a Ceph pool; serve it with  store: rados, or choose another folder with --data", f.path)
	case s.CacheBytes != 0 && s.Store != storeRados && f.kind == storeRados:
		return fmt.Errorf("the data folder %s has an array in its files; choose another with --data for one in a Ceph pool", f.path)
	}
	return nil
}
