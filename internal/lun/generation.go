// A reservation key as a witness. What a host registers says who it is and how new the cache before the unit is, so that
// whoever takes over learns of the generation though the host is gone, and a host that was fenced cannot
// raise it: REGISTER names the key that is replaced, and a preempted host has none. The array keeps keys over its restarts
// (APTPL). Of the 8 bytes, from the highest bit on: check (12), generation (28), host (24). A key with generation 0 is the
// host's number alone.

package lun

import (
	"errors"
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/crc32c"
)

const (
	hostBits       = 24
	generationBits = 28
	// MaxHostKey is the highest key of a host; the rest of the 8 bytes has the generation.
	MaxHostKey    = 1<<hostBits - 1
	maxGeneration = 1<<generationBits - 1
	checkShift    = hostBits + generationBits
)

// keyCheck tells a key with a generation from one that something else has registered.
func keyCheck(low uint64) uint64 {
	return uint64(crc32c.Checksum(be.AppendUint64(nil, low))) >> (32 - (64 - checkShift))
}

// markedKey is the key of a host whose cache has a generation.
func markedKey(host, generation uint64) uint64 {
	if generation == 0 {
		return host
	}
	low := generation<<hostBits | host
	return keyCheck(low)<<checkShift | low
}

// splitKey is the reverse of markedKey. What is none of those keys is a host without generation.
func splitKey(key uint64) (host, generation uint64) {
	low := key & (1<<checkShift - 1)
	if generation = low >> hostBits; generation == 0 || keyCheck(low) != key>>checkShift {
		return key, 0
	}
	return low & MaxHostKey, generation
}

// newest is the highest generation among keys.
func newest(keys []uint64) (generation uint64) {
	for _, k := range keys {
		_, g := splitKey(k)
		generation = max(generation, g)
	}
	return generation
}

// ErrFenced is the error of a host whose registration somebody has removed.
var ErrFenced = errors.New("this host was fenced: its registration at the LUN is gone")

// Generation returns the highest generation that a registration at the unit has, 0 if none has any. Like all calls of this
// file it waits, the executor is not held, and there is one at a time.
func (d *Device) Generation() (uint64, error) {
	keys, err := d.keys()
	return newest(keys), err
}

// SetGeneration puts a generation into our registration, which Reserve or Fence has made. It fails with ErrFenced when that is
// gone.
func (d *Device) SetGeneration(n uint64) error {
	d.registering.Lock()
	defer d.registering.Unlock()
	return d.setGeneration(n)
}

func (d *Device) setGeneration(n uint64) error {
	host, _ := splitKey(d.key)
	switch {
	case d.key == 0:
		return errors.New("this host has no registration at the LUN")
	case n == 0 || n > maxGeneration:
		return fmt.Errorf("a reservation key has no room for generation %d; it must be 1 to %d", n, maxGeneration)
	}
	was, key := d.key, markedKey(host, n)
	if key == was {
		return d.present(key)
	}
	err := d.reserveOut(prRegister, was, key)
	if err != nil {
		// A session that sends it again, because its answer was lost, finds the new key.
		if perr := d.present(key); perr != nil {
			if errors.Is(err, ErrReserved) && errors.Is(perr, ErrFenced) {
				return ErrFenced
			}
			return err
		}
	}
	d.key, d.newcomer = key, false
	return nil
}

// present fails with ErrFenced unless a key is registered.
func (d *Device) present(key uint64) error {
	keys, err := d.keys()
	if err == nil && !slices.Contains(keys, key) {
		err = ErrFenced
	}
	return err
}

// Fenced fails with ErrFenced when another host's reservation keeps this one from writing. A unit without reservations
// fences nobody.
func (d *Device) Fenced() error {
	d.registering.Lock()
	defer d.registering.Unlock()
	held, kind, err := d.reservation()
	switch {
	case illegalRequest(err) || err == nil && !held:
		return nil
	case err != nil:
		return err
	case d.key != 0 && slices.Contains(registrantsTypes, kind):
		return d.present(d.key)
	}
	return ErrFenced // the holder alone writes, or who is registered
}
