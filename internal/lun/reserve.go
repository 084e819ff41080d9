// Persistent reservations (SPC-5 5.14, 6.16, 6.17), as a host uses them that may be lost: it makes the unit
// writable for registrants alone, so that whoever takes its place keeps it out by removing its key.
// Everything is registered with APTPL: a fence that an array's restart forgets is none. These calls
// wait; the executor is not held.

package lun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	opReserveIn  = 0x5e
	opReserveOut = 0x5f

	// Service actions of PERSISTENT RESERVE OUT.
	prRegister        = 0x00
	prReserve         = 0x01
	prRelease         = 0x02
	prPreemptAbort    = 0x05
	prRegisterIgnore  = 0x06
	prListLen         = 24
	prActivateThrough = 0x01 // APTPL, in byte 20 of the list

	// Service actions of PERSISTENT RESERVE IN.
	prReadKeys        = 0x00
	prReadReservation = 0x01
	prInHead          = 8
	maxKeys           = 1024 // that we ask for

	fenceTries = 32 // of a preemption whose key the lost host has replaced

	typeWriteRegistrants = 0x05 // write exclusive - registrants only
)

// registrantsTypes are the types of reservations that let whoever is registered write, and nobody else: registrants only and
// all registrants, write exclusive and exclusive access.
var registrantsTypes = []byte{typeWriteRegistrants, 0x06, 0x07, 0x08}

// ErrUnknownKey is the error of a fence that finds nobody to fence: the lost host's key is not registered, and others
// than ours are.
var ErrUnknownKey = errors.New("the lost host's key is not registered, and another host has the reservation")

// ErrOwnSession is an ErrReserved: the reservation has our key and is another session's, which may
// have ended. A fence by another key ends it.
var ErrOwnSession = fmt.Errorf("%w: by this host's key, and by another session, as of another flash path or portal", ErrReserved)

// HasReservations tells whether the unit knows persistent reservations; one that does not answer may.
func (d *Device) HasReservations() bool {
	_, err := d.keys()
	return !illegalRequest(err)
}

// Reserve registers a key and makes the unit writable for registrants only, so that this
// host can be fenced when it is lost. A reservation that is refused leaves no registration that was not there.
func (d *Device) Reserve(ours uint64) error {
	d.registering.Lock()
	defer d.registering.Unlock()
	held, _, err := d.reservation()
	if err != nil {
		return err
	}
	keys, err := d.register(ours)
	if err != nil {
		return err
	}
	d.newcomer = len(ofHost(keys, ours)) == 0
	// A host that was fenced finds its taker's reservation here. That it could register again does not let it in.
	err = d.reserveOut(prReserve, d.key, 0)
	if err != nil && d.newcomer {
		d.newcomer = false
		return d.unregister(err)
	}
	if d.reserved = err == nil && !held; errors.Is(err, ErrReserved) && d.heldAs(ours) {
		return ErrOwnSession
	}
	return err
}

// heldAs tells whether the reservation is that of a host with this key.
func (d *Device) heldAs(host uint64) bool {
	b, err := d.reserveIn(prReadReservation, prInHead+16)
	return err == nil && len(b) >= 16 && len(ofHost([]uint64{be.Uint64(b)}, host)) > 0
}

// Release ends our reservation. The registration stays: it has the generation.
func (d *Device) Release() error {
	d.registering.Lock()
	defer d.registering.Unlock()
	return d.release()
}

func (d *Device) release() error {
	d.reserved = false
	return d.reserveOut(prRelease, d.key, 0)
}

// Withdraw takes back what Reserve has done. What was there before stays, and a registration that got a generation since.
func (d *Device) Withdraw() (err error) {
	d.registering.Lock()
	defer d.registering.Unlock()
	if d.reserved {
		err = d.release()
	}
	if d.newcomer {
		d.newcomer = false
		err = errors.Join(err, d.reserveOut(prRegister, d.key, 0))
		d.key = 0
	}
	return err
}

// register makes a key ours. It has the highest generation that is registered, so that none is lost with
// the key that it replaces, or with one that is preempted. It returns what was registered before.
func (d *Device) register(ours uint64) (keys []uint64, err error) {
	if ours == 0 || ours > MaxHostKey {
		return nil, fmt.Errorf("a host's reservation key must be 1 to %#x, not %#x: the rest of the 8 bytes has the cache's generation", MaxHostKey, ours)
	}
	if keys, err = d.keys(); err != nil {
		return nil, err
	}
	key := markedKey(ours, newest(keys))
	if err = d.reserveOut(prRegisterIgnore, 0, key); err != nil {
		return nil, err
	}
	d.key = key
	return keys, nil
}

// ofHost returns the keys of a host, whatever their generation.
func ofHost(keys []uint64, host uint64) (found []uint64) {
	for _, k := range keys {
		if h, _ := splitKey(k); h == host || k == host {
			found = append(found, k)
		}
	}
	return found
}

// Fence keeps the host with a reservation key from writing: we register ours, preempt that one's and abort what it has
// under way, so that when Fence returns nothing of that host lands any more, not even after a restart of the
// array. Fencing again, after a crash in the middle, does what is left to do. A host that is not registered is kept
// out by the reservation alone.
func (d *Device) Fence(ours, lost uint64) error {
	d.registering.Lock()
	defer d.registering.Unlock()
	if ours == lost {
		return fmt.Errorf("both hosts have reservation key %#x; give the one that takes over a different key", ours)
	}
	keys, err := d.register(ours)
	if err != nil {
		return err
	}
	preempted, err := d.fence(ours, lost)
	if err != nil && !preempted && len(ofHost(keys, ours)) == 0 {
		return d.unregister(err)
	}
	return err // our registration may hold the reservation that keeps the lost host out: it stays
}

// fence reports whether it has tried to preempt, after which nobody knows what of it was done.
func (d *Device) fence(ours, lost uint64) (preempted bool, err error) {
	for try := 0; ; try++ {
		keys, err := d.keys()
		if err != nil {
			return preempted, err
		}
		victims := ofHost(keys, lost)
		if len(victims) == 0 {
			return preempted, d.takeReservation(preempted, keys)
		}
		if g := newest(keys); g > newest([]uint64{d.key}) { // it goes with the key that is preempted
			if err := d.setGeneration(g); err != nil {
				return preempted, err
			}
		}
		preempted = true
		// The lost host, which may still live, cannot raise its generation unseen: its key is another one then, and
		// this fails. A session that sends it again, because its answer was lost, finds nobody any more.
		if err := d.reserveOut(prPreemptAbort, d.key, victims[0]); err != nil {
			if keys, kerr := d.keys(); kerr != nil || try >= fenceTries || slices.Contains(keys, victims[0]) {
				return true, err
			}
		}
	}
}

// takeReservation makes the reservation ours when the lost host has no registration any more: if it was that host's, the
// preemption has done it. It may be another registrant's, which keeps that host out as well.
func (d *Device) takeReservation(preempted bool, keys []uint64) error {
	if preempted {
		if !slices.Contains(keys, d.key) {
			return ErrFenced
		}
		held, kind, err := d.reservation()
		if err != nil || held && slices.Contains(registrantsTypes, kind) {
			return err
		}
	}
	err := d.reserveOut(prReserve, d.key, 0)
	if errors.Is(err, ErrReserved) && !preempted {
		return fmt.Errorf("%w; registered are %s", ErrUnknownKey, keyNames(keys, d.key))
	}
	return err
}

// keyNames lists the hosts of keys, but for ours.
func keyNames(keys []uint64, ours uint64) string {
	var names []string
	for _, k := range keys {
		if host, _ := splitKey(k); k != ours {
			names = append(names, fmt.Sprintf("%#x", host))
		}
	}
	return strings.Join(names, ", ")
}

// unregister takes our registration back after a failure, which it returns.
func (d *Device) unregister(failure error) error {
	host, _ := splitKey(d.key)
	if err := d.reserveOut(prRegister, d.key, 0); err != nil {
		return fmt.Errorf("%w; and this host's registration, key %#x, remains: %v", failure, host, err)
	}
	d.key = 0
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
		return nil, fmt.Errorf("PERSISTENT RESERVE IN has %d bytes, %d were requested: too many registrations", uint64(n)+prInHead, room)
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
