// Persistent reservations (SPC-5 5.14, 6.16, 6.17), as a host uses them that may be lost: it makes the unit
// writable for registrants alone, so that whoever takes its place keeps it out by removing its key.
// Everything is registered with APTPL: a fence that an array's restart forgets is none. These calls
// wait; the executor is not held.

package lun

import (
	"errors"
	"fmt"
	"slices"
)

const (
	opReserveIn  = 0x5e
	opReserveOut = 0x5f

	// Service actions of PERSISTENT RESERVE OUT.
	prRegister        = 0x00
	prReserve         = 0x01
	prPreemptAbort    = 0x05
	prRegisterIgnore  = 0x06
	prListLen         = 24
	prActivateThrough = 0x01 // APTPL, in byte 20 of the list

	// Service actions of PERSISTENT RESERVE IN.
	prReadKeys        = 0x00
	prReadReservation = 0x01
	prInHead          = 8
	maxKeys           = 1024 // that we ask for

	typeWriteRegistrants = 0x05 // write exclusive - registrants only
)

// registrantsTypes are the types of reservations that let whoever is registered write, and nobody else: registrants only and
// all registrants, write exclusive and exclusive access.
var registrantsTypes = []byte{typeWriteRegistrants, 0x06, 0x07, 0x08}

// ErrUnknownKey is the error of a fence that finds nobody to fence: the lost host's key is not registered, and others
// than ours are.
var ErrUnknownKey = errors.New("the lost host's key is not registered, and another host has the reservation")

// Reserve registers a key and makes the unit writable for registrants only, so that this
// host can be fenced when it is lost. A reservation that is refused leaves no registration.
func (d *Device) Reserve(ours uint64) error {
	if err := d.reserveOut(prRegisterIgnore, 0, ours); err != nil {
		return err
	}
	// A host that was fenced finds its taker's reservation here. That it could register again does not let it in.
	if err := d.reserveOut(prReserve, ours, 0); err != nil {
		return d.unregister(ours, err)
	}
	return nil
}

// Fence keeps the host with a reservation key from writing: we register ours, preempt that one's and abort what it has
// under way, so that when Fence returns nothing of that host lands any more, not even after a restart of the
// array. Fencing again, after a crash in the middle, does what is left to do. A host that is not registered is kept
// out by the reservation alone.
func (d *Device) Fence(ours, lost uint64) error {
	if err := d.reserveOut(prRegisterIgnore, 0, ours); err != nil {
		return err
	}
	preempted, err := d.fence(ours, lost)
	if err != nil && !preempted {
		return d.unregister(ours, err)
	}
	return err // our registration may hold the reservation that keeps the lost host out: it stays
}

// fence reports whether it has tried to preempt, after which nobody knows what of it was done.
func (d *Device) fence(ours, lost uint64) (preempted bool, err error) {
	keys, err := d.keys()
	if err != nil {
		return false, err
	}
	if !slices.Contains(keys, lost) {
		err := d.reserveOut(prReserve, ours, 0)
		if errors.Is(err, ErrReserved) {
			return false, ErrUnknownKey
		}
		return false, err
	}
	if err := d.reserveOut(prPreemptAbort, ours, lost); err != nil {
		// A session that sends it again, because its answer was lost, finds nobody any more.
		keys, kerr := d.keys()
		if kerr != nil || slices.Contains(keys, lost) || !slices.Contains(keys, ours) {
			return true, err
		}
	}
	// Now the reservation is ours, if it was the lost host's. It may be another registrant's, which keeps that host out as well.
	held, kind, err := d.reservation()
	if err != nil {
		return true, err
	}
	if held && slices.Contains(registrantsTypes, kind) {
		return true, nil
	}
	return true, d.reserveOut(prReserve, ours, 0)
}

// unregister takes our registration back after a failure, which it returns.
func (d *Device) unregister(ours uint64, failure error) error {
	if err := d.reserveOut(prRegister, ours, 0); err != nil {
		return fmt.Errorf("%w; and our registration, key %#x, stays: %v", failure, ours, err)
	}
	return failure
}

// reserveOut is PERSISTENT RESERVE OUT, type write exclusive - registrants only.
func (d *Device) reserveOut(action byte, key, serviceKey uint64) error {
	list := make([]byte, prListLen)
	be.PutUint64(list, key)
	be.PutUint64(list[8:], serviceKey)
	if action == prRegister || action == prRegisterIgnore {
		list[20] = prActivateThrough
	}
	_, err := d.do([]byte{opReserveOut, action, typeWriteRegistrants, 0, 0, 0, 0, 0, prListLen, 0}, list, 0)
	return err
}

// reserveIn returns what a service action of PERSISTENT RESERVE IN answers behind its head.
func (d *Device) reserveIn(action byte, room int) ([]byte, error) {
	b, err := d.do([]byte{opReserveIn, action, 0, 0, 0, 0, 0, byte(room >> 8), byte(room), 0}, nil, room)
	if err != nil {
		return nil, err
	}
	if len(b) < prInHead {
		return nil, fmt.Errorf("PERSISTENT RESERVE IN gave %d bytes", len(b))
	}
	n := be.Uint32(b[4:])
	if uint64(n) > uint64(len(b)-prInHead) {
		return nil, fmt.Errorf("PERSISTENT RESERVE IN has %d bytes, %d were asked for: too many registrations", uint64(n)+prInHead, room)
	}
	return b[prInHead : prInHead+n], nil
}

// keys returns the keys that are registered.
func (d *Device) keys() (keys []uint64, err error) {
	b, err := d.reserveIn(prReadKeys, prInHead+8*maxKeys)
	for ; len(b) >= 8; b = b[8:] {
		keys = append(keys, be.Uint64(b))
	}
	return keys, err
}

// reservation returns the type of the reservation, if there is one.
func (d *Device) reservation() (held bool, kind byte, err error) {
	b, err := d.reserveIn(prReadReservation, prInHead+16)
	if len(b) < 16 {
		return false, 0, err
	}
	return true, b[13] & 0x0f, nil
}
