// Package lun makes a block.Device of a logical unit that lies elsewhere: requests
// become CDBs, which a transport carries out. Copies between two units of one transport stay
// in the array: a reference is a unit's name and ranges, and placing it is an EXTENDED
// COPY.
//
// # Concurrency
//
// A Device belongs to its executor, like every block.Device. Transports have their own
// goroutines and post to it.
package lun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/iscsi"
)

// Command is a SCSI command under way.
type Command struct {
	CDB    []byte
	Out    [][]byte
	In     [][]byte
	Status byte
	Sense  []byte
	InLen  int
	Lost   error // the transport failed; whether the command was carried out is not known
	Done   func(*Command)

	// Once: a second time it would find what it did the first time. A transport that has lost it midway
	// must not send it again.
	Once bool
	// Timed: it takes the unit little time. A transport gives its connection up when there is no answer.
	Timed bool
	// Sync: it empties the unit's cache, which takes as long as it takes, unless the transport has
	// a time for that.
	Sync bool

	// The transport's.
	due       time.Time
	bounded   bool // it has an end at due, also when it was sent
	sent      *iscsi.Command
	place     int // in the list of those that were sent
	withdrawn bool

	dev   *Device
	req   *block.Request
	cdb   [16]byte
	list  []byte
	tries int
	// cancelled: who sent the request does not want it any more.
	cancelled bool
	pause     block.Timer // until it is sent again; nil: it is with the transport
	// unsynced: a SYNCHRONIZE CACHE has to follow, for FUA (fua.go); syncing: it is that one.
	unsynced, syncing bool
	losses            uint64 // of power of the unit, that were told when the command before that was sent
}

// Transport carries out commands on one logical unit.
type Transport interface {
	// Start begins a command; Done comes from any goroutine, not from inside Start.
	Start(*Command)
	// Cancel withdraws a command that has begun and not ended. It ends as it would have, or with Lost; in that case it may
	// have been carried out in part.
	Cancel(*Command)
	Close()
}

// Device is a remote logical unit.
type Device struct {
	exec   block.Executor
	t      Transport
	label  string // what Name returns
	info   block.Info
	shift  uint // log2 of sectors a logical block
	zero   []byte
	free   []*Command
	name   designator // by which other units' copies find it
	listen []func(block.Event)
	closed bool

	// unheard is what happened before there was a listener.
	unheard   []block.EventKind
	losses    uint64      // of power that were told since Open began
	fua       bool        // the unit takes the FUA bit; constant
	opened    bool        // Open has ended
	measuring *Command    // reads the capacity; nil: none does
	remeasure bool        // it may have changed since
	later     block.Timer // reads it, because it could not be read; nil: nothing will
	// said: the unit has said that its capacity has changed, and that is being read; recapacity: and it is to be read once more.
	said, recapacity bool
	tracks           bool // the unit tells what others change
	holds
	key uint64 // that we have registered, 0: none

	// registering is held while the registration is used or changed: who releases a reservation must not name a key that a
	// new generation is just replacing.
	registering sync.Mutex
	// Of the last Reserve: whether the registration and the reservation were not there before.
	newcomer, reserved bool
}

var _ block.Device = (*Device)(nil)

var be = binary.BigEndian

// SCSI status and sense that a client must understand.
const (
	statusGood     = 0x00
	statusCheck    = 0x02
	statusBusy     = 0x08
	statusConflict = 0x18
	statusFull     = 0x28
	statusAborted  = 0x40

	senseIllegal    = 0x05
	senseAttention  = 0x06
	senseAborted    = 0x0b
	senseMiscompare = 0x0e
	maxTries        = 8
	retryNanos      = 20_000_000
	inquiryLen      = 36
)

// Open asks the unit who it is. It waits; the executor is not held.
func Open(exec block.Executor, t Transport, name string) (*Device, error) {
	d := &Device{exec: exec, t: t, label: name}
	if err := d.identify(name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d.zero = make([]byte, d.info.BlockSize)
	exec.Lock()
	defer exec.Unlock()
	if d.opened = true; d.remeasure {
		d.measure()
	}
	return d, nil
}

// do carries out a command and waits for it.
func (d *Device) do(cdb []byte, out []byte, in int) ([]byte, error) {
	for try := 0; ; try++ {
		end := make(chan struct{})
		c := &Command{CDB: cdb, Timed: true, Done: func(c *Command) { // from where what ended before was posted, too
			if c.Lost == nil && c.key() == senseAttention {
				d.exec.Post(func() { d.attention(c) })
			}
			close(end)
		}}
		if len(out) > 0 {
			c.Out = [][]byte{out}
		}
		if in > 0 {
			c.In = [][]byte{make([]byte, in)}
		}
		d.t.Start(c)
		<-end
		switch {
		case c.Lost != nil:
			return nil, c.Lost
		case c.Status == statusGood:
			if in == 0 {
				return nil, nil
			}
			return c.In[0][:c.InLen], nil
		case c.key() == senseAttention && try < maxTries:
			continue
		}
		return nil, c.failure()
	}
}

// ErrReserved is the error of a unit that another host has reserved.
var ErrReserved = errors.New("another host has reserved the LUN, or has fenced this one")

func (c *Command) failure() error {
	if c.Status == statusConflict {
		return ErrReserved
	}
	e := &senseError{opcode: c.CDB[0], status: c.Status}
	e.key, e.asc = c.sense()
	return e
}

// senseError is a command's status other than GOOD.
type senseError struct {
	opcode, status, key byte
	asc                 uint16
}

func (e *senseError) Error() string {
	return fmt.Sprintf("operation code %02Xh ended with status %02Xh, sense %X/%02X/%02X", e.opcode, e.status, e.key, e.asc>>8, e.asc&0xff)
}

// illegalRequest reports whether the unit does not know a command or a page.
func illegalRequest(err error) bool {
	var e *senseError
	return errors.As(err, &e) && e.status == statusCheck && e.key == senseIllegal
}

// sense returns the key and the additional code of fixed or descriptor sense data.
func (c *Command) sense() (key byte, asc uint16) {
	s := c.Sense
	switch {
	case len(s) >= 14 && s[0]&0x7e == 0x70:
		return s[2] & 0x0f, be.Uint16(s[12:])
	case len(s) >= 4 && s[0]&0x7e == 0x72:
		return s[1] & 0x0f, be.Uint16(s[2:])
	}
	return 0, 0
}

// information returns the INFORMATION of fixed or descriptor sense data, if it has one.
func (c *Command) information() (uint64, bool) {
	const (
		descHead, descInformation, informationLen = 2, 0x00, 12
		valid                                     = 0x80
	)
	s := c.Sense
	switch {
	case len(s) >= 7 && s[0]&0x7e == 0x70:
		return uint64(be.Uint32(s[3:])), s[0]&valid != 0
	case len(s) >= 8 && s[0]&0x7e == 0x72:
		for d := s[8:min(len(s), 8+int(s[7]))]; len(d) >= descHead; d = d[min(len(d), descHead+int(d[1])):] {
			if d[0] == descInformation && d[1] == informationLen-descHead && len(d) >= informationLen {
				return be.Uint64(d[4:]), d[2]&valid != 0
			}
		}
	}
	return 0, false
}

// aborted is the outcome of a command that the unit gave up: it is sent again, unless it may have been carried out and would
// then find what it did.
func (c *Command) aborted() block.Status {
	if c.Once {
		return block.Offline
	}
	return block.Resources
}

func (c *Command) key() byte {
	if c.Status != statusCheck {
		return 0
	}
	k, _ := c.sense()
	return k
}

func (d *Device) identify(name string) error {
	if _, err := d.do([]byte{0x00, 0, 0, 0, 0, 0}, nil, 0); err != nil {
		return err
	}
	b, err := d.do(readCapacity[:], nil, capacityLen)
	if err != nil {
		return err
	}
	i := &d.info
	i.Name = name
	if err := d.setCapacity(b); err != nil {
		return err
	}
	inquiry, err := d.do([]byte{0x12, 0, 0, 0, inquiryLen, 0}, nil, inquiryLen)
	if err != nil {
		return err
	}
	vendor, product := "", ""
	if len(inquiry) == inquiryLen {
		vendor, product = strings.TrimSpace(string(inquiry[8:16])), strings.TrimSpace(string(inquiry[16:32]))
	}
	if b, err = d.do([]byte{0x12, 1, 0x83, 0x04, 0, 0}, nil, 1024); err != nil && !illegalRequest(err) {
		return err
	}
	d.name = unitName(slices.Clone(b), product)
	i.NAA = d.name.identity()
	if b, err = d.do([]byte{0x12, 1, 0x80, 0, 252, 0}, nil, 252); err == nil && len(b) > 4 {
		i.Serial = strings.TrimSpace(string(b[4:min(len(b), 4+int(b[3]))]))
	}
	// Only our own array's page is understood: codes from 30h on are every vendor's own.
	if vendor == "ARRAYSIM" {
		b, err = d.do(logSense(changesHead), nil, changesHead)
		if err != nil && !illegalRequest(err) { // a unit that may track changes is not taken for one that does not
			return err
		}
		d.tracks = err == nil && len(b) == changesHead
	}
	i.GranuleSectors = 8
	i.CopyDomain = "lun"
	return d.learnFUA()
}

// Info describes the unit.
func (d *Device) Info() block.Info { return d.info }

// Name returns the unit's name, which never changes. The executor need not be held.
func (d *Device) Name() string { return d.label }

// Cancel withdraws a request: what waits for a session ends at once, what the unit has is aborted there.
func (d *Device) Cancel(r *block.Request) {
	if c, ok := r.Priv.(*Command); ok && c.req == r {
		c.cancelled = true
		if c.pause == nil {
			d.t.Cancel(c)
		} else if c.pause.Stop() {
			d.recycle(c)
			d.finish(r, block.Cancelled)
		}
	}
}

// Close ends the transport.
func (d *Device) Close() {
	d.closed = true
	d.t.Close()
}

// Submit starts requests.
func (d *Device) Submit(reqs []*block.Request) {
	for _, r := range reqs {
		d.submit(r)
	}
}

func (d *Device) submit(r *block.Request) {
	switch {
	case d.closed:
		d.finish(r, block.Gone)
		return
	case r.Op == block.OpHold:
		r.Ref = d.hold(r)
		d.finish(r, block.OK)
		return
	}
	d.touch(r)
	c := d.command()
	c.req, r.Priv = r, c
	if s := d.encode(c, r); s != block.OK {
		d.recycle(c)
		d.finish(r, s)
		return
	}
	c.losses = d.losses
	d.t.Start(c)
}

// recycle keeps a command that has ended for the next request.
func (d *Device) recycle(c *Command) {
	if c.req != nil {
		c.req.Priv = nil
	}
	c.req, c.tries, c.Out, c.In, c.list = nil, 0, nil, nil, c.list[:0]
	c.cancelled, c.withdrawn, c.pause = false, false, nil
	d.free = append(d.free, c)
}

func (d *Device) finish(r *block.Request, s block.Status) {
	d.exec.Post(func() {
		r.Status = s
		r.Done(r)
	})
}

func (d *Device) command() *Command {
	if n := len(d.free); n > 0 {
		c := d.free[n-1]
		d.free = d.free[:n-1]
		return c
	}
	c := &Command{dev: d}
	ended := func() { d.ended(c) }
	c.Done = func(*Command) { d.exec.Post(ended) }
	return c
}

// ended is on the executor again.
func (d *Device) ended(c *Command) {
	r := c.req
	s := d.status(c)
	news := c.Lost == nil && c.key() == senseAttention
	if news {
		d.attention(c)
	}
	if d.unsaved(c, s, news) {
		d.encode(c, r) // as when it was sent first
		s, news = c.aborted(), false
	}
	if !c.cancelled && !d.closed && c.tries < maxTries && (news || s == block.Resources) {
		if c.tries++; !c.syncing {
			c.losses = d.losses
		}
		if news {
			d.t.Start(c)
			return
		}
		c.pause = d.exec.At(d.exec.Now()+retryNanos<<c.tries, func() {
			c.pause = nil
			d.t.Start(c)
		})
		return
	}
	if s == block.OK && c.unsynced && !c.cancelled && !d.closed {
		d.sync(c)
		return
	}
	switch {
	case c.cancelled && (s != block.OK || c.unsynced):
		s = block.Cancelled
	case s == block.OK && c.unsynced:
		s = block.Gone
	case c.syncing:
		s = d.halfDone(c, s)
	}
	if s == block.OK && r.Op == block.OpStatus {
		d.extents(c, r)
	}
	if s == block.Miscompare {
		if at, ok := c.information(); ok {
			r.Offset = at
		}
	}
	d.recycle(c)
	r.Status = s
	r.Done(r)
}

func (d *Device) status(c *Command) block.Status {
	switch {
	case c.Lost != nil && c.cancelled:
		return block.Cancelled
	case c.Lost != nil:
		return block.Offline
	}
	switch c.Status {
	case statusGood:
		if r := c.req; r != nil && r.Op == block.OpRead && !c.syncing && uint64(c.InLen) < r.Range.Bytes() {
			return block.Hardware // its memory may hold anything behind what came
		}
		return block.OK
	case statusBusy, statusFull:
		return block.Resources
	case statusConflict:
		return block.Offline // another host has the unit
	case statusAborted: // by another host's task management
		return c.aborted()
	}
	key, asc := c.sense()
	switch {
	case key == senseAborted:
		return c.aborted()
	case key == senseMiscompare:
		return block.Miscompare
	case asc == 0x2707:
		return block.NoSpace
	case key == 0x07:
		return block.ReadOnly
	case key == 0x04 && asc == 0x4400: // the target does not say what it has done
		if c.Once {
			return block.Offline
		}
		return block.Hardware
	case asc == 0x2100:
		return block.OutOfRange
	case key == 0x05:
		return block.Unsupported
	case key == 0x02:
		return block.Offline
	case c.req.Op == block.OpRead && !c.syncing:
		return block.MediumRead
	}
	return block.MediumWrite
}
