package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/iscsi"
)

const (
	blockSize = 512
	// fillWrite is the length of a WRITE that fills, fillers how many are under way.
	fillWrite = mebibyte
	fillers   = 4
	// copyBytes is the length of an EXTENDED COPY, as hypervisors send them, and movers how many are under way.
	copyBytes = 4 * mebibyte
	movers    = 4

	dialTime = 10 * time.Second
	// attentions bounds the unit attention conditions that a new session is told.
	attentions = 4

	statusGood  = 0x00
	statusCheck = 0x02
)

// host is a session to a LUN: one command at a time. It ends with its context.
type host struct {
	c    *iscsi.Client
	lun  uint64
	stop func() bool // forgets the context
}

var errNoPortal = errors.New("the array has no iSCSI portal; start it with --listen 127.0.0.1:3260")

// served reports whether an array has a portal.
func served(s admin.Status) bool { return s.Portal != "" && s.Portal != "none" }

// login opens session number n of an initiator to a LUN, and hears its unit attention conditions.
func (d *demo) login(ctx context.Context, initiator string, n, lun int) (*host, error) {
	a := iscsi.At(d.status.Portal, d.status.Target, uint64(lun), nil)
	dialer := net.Dialer{Timeout: dialTime}
	nc, err := dialer.DialContext(ctx, "tcp", a.Portal)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	c, err := iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: "iqn.2026-01.io.arraysim:demo-" + initiator, Target: a.Target,
		ISID: [6]byte{0x80, 0, 0, 0, 0, byte(n)}})
	if err != nil {
		stop()
		var refused *iscsi.LoginError
		if errors.As(err, &refused) {
			return nil, fmt.Errorf("the array refuses the login (%w); run the demonstration on an array without CHAP and access lists", err)
		}
		return nil, err
	}
	h := &host{c: c, lun: a.LUN, stop: stop}
	for range attentions {
		if err = h.do(make([]byte, 6), nil); err == nil {
			return h, nil
		}
	}
	h.close()
	return nil, err
}

func (h *host) close() {
	_ = h.c.Logout() // the session is of no more use, whatever the answer
	h.stop()
}

// do carries out a command that returns no data.
func (h *host) do(cdb, out []byte) error {
	r, err := h.c.Command(h.lun, cdb, out, 0)
	switch {
	case err != nil:
		return err
	case r.Status == statusCheck && len(r.Sense) >= 14:
		return fmt.Errorf("command %02xh ends with sense %x/%02x/%02x", cdb[0], r.Sense[2]&0xF, r.Sense[12], r.Sense[13])
	case r.Status != statusGood:
		return fmt.Errorf("command %02xh ends with status %02xh", cdb[0], r.Status)
	}
	return nil
}

// write sends a WRITE(16) (SBC-4 5.40) of whole blocks at a byte offset.
func (h *host) write(at uint64, data []byte) error {
	var cdb [16]byte
	cdb[0] = 0x8A
	binary.BigEndian.PutUint64(cdb[2:], at/blockSize)
	binary.BigEndian.PutUint32(cdb[10:], uint32(len(data)/blockSize))
	return h.do(cdb[:], data)
}

// copy sends an EXTENDED COPY(LID1) (SPC-4 6.3) of one block-to-block segment (6.3.7.5) between the LUNs
// with these NAA names, to the same place.
func (h *host) copy(from, to []byte, at, n uint64) error {
	be := binary.BigEndian
	list := make([]byte, 16, 16+2*32+28)
	list[1] = 3 << 3 // LIST ID USAGE: none is held
	be.PutUint16(list[2:], 2*32)
	be.PutUint32(list[8:], 28)
	for _, naa := range [][]byte{from, to} {
		var cscd [32]byte // identification descriptor: binary, NAA, of a logical unit
		cscd[0], cscd[4], cscd[5], cscd[7] = 0xE4, 1, 3, 16
		copy(cscd[8:24], naa)
		be.PutUint32(cscd[28:], blockSize)
		list = append(list, cscd[:]...)
	}
	var segment [28]byte
	segment[0], segment[3], segment[7] = 0x02, 24, 1
	be.PutUint16(segment[10:], uint16(n/blockSize))
	be.PutUint64(segment[12:], at/blockSize)
	be.PutUint64(segment[20:], at/blockSize)
	list = append(list, segment[:]...)
	var cdb [16]byte
	cdb[0] = 0x83
	be.PutUint32(cdb[10:], uint32(len(list)))
	return h.do(cdb[:], list)
}

// fill writes all of the golden volume over the wire, with bytes that do not repeat.
func (d *demo) fill(ctx context.Context) error {
	random := rand.NewChaCha8([32]byte{})
	var mu sync.Mutex // orders what random gives
	return d.spread(ctx, "host", d.layout.luns[0], fillers, fillWrite, func(h *host, at, n uint64) error {
		data := make([]byte, n)
		mu.Lock()
		_, _ = random.Read(data) // never fails
		mu.Unlock()
		return h.write(at, data)
	})
}

// clone copies the golden volume to its clone by EXTENDED COPY.
func (d *demo) clone(ctx context.Context) error {
	return d.spread(ctx, "cloner", d.layout.luns[1], movers, copyBytes, func(h *host, at, n uint64) error {
		return h.copy(d.layout.naa[0], d.layout.naa[1], at, n)
	})
}

// spread calls do for each piece of an image, from sessions of an initiator beside each other. The first error
// ends it.
func (d *demo) spread(ctx context.Context, initiator string, lun, sessions int, piece uint64, do func(h *host, at, n uint64) error) error {
	size := uint64(d.layout.size)
	var mu sync.Mutex
	var next uint64 // guarded by mu
	var first error // guarded by mu
	take := func() (at uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		at, next = next, next+piece
		return at, at < size && first == nil
	}
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && first == nil {
			first = err
		}
	}
	var all sync.WaitGroup
	for i := range sessions {
		all.Go(func() {
			h, err := d.login(ctx, initiator, i, lun)
			if err != nil {
				fail(err)
				return
			}
			defer h.close()
			for at, ok := take(); ok; at, ok = take() {
				n := min(piece, size-at)
				fail(do(h, at, n))
				d.sampler.add(n)
			}
		})
	}
	all.Wait()
	return first
}
