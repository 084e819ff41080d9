// What a unit attention says of the unit's data goes to who caches it, whichever command it came
// with: one of the time before there is a listener is kept for the first. Whatever may have changed
// the unit's size has its capacity read again, and so has every loss of the session, for what is
// pending at the unit is lost with that.

package lun

import (
	"fmt"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
)

// Additional sense codes of unit attentions (SPC-5 table 59).
const (
	ascReadyChange    = 0x28
	ascReset          = 0x29
	ascPowerOn        = 0x2900 // or a reset that may have been one
	ascPowerOnAlone   = 0x2901
	ascParameters     = 0x2a
	ascCapacity       = 0x2a09
	ascModeParameters = 0x2a01
	ascAnyParameters  = 0x2a00
	ascThreshold      = 0x38
	ascTarget         = 0x3f // operating conditions, inquiry data, LUNs
)

// attention hears of what changed at the unit. It is called on the executor, with the command that
// brought the news: at once, because what ends after this must not be taken for what was there
// before.
func (d *Device) attention(c *Command) {
	_, asc := c.sense()
	switch asc >> 8 {
	case ascReset:
		if asc == ascPowerOn || asc == ascPowerOnAlone {
			d.tell(block.EventPowerLoss)
		}
	case ascParameters:
		if asc != ascCapacity && asc != ascModeParameters && asc != ascAnyParameters {
			return // reservations, access states, time stamps
		}
	case ascThreshold:
		return
	case ascTarget:
	case ascReadyChange:
		d.tell(block.EventGeneration)
	default:
		d.tell(block.EventGeneration)
		return
	}
	if c == d.measuring {
		d.said = d.said || asc == ascCapacity
		return
	}
	d.recapacity = d.recapacity || asc == ascCapacity
	d.measure()
}

// tell notifies the listeners, or keeps the news for the first one.
func (d *Device) tell(kind block.EventKind) {
	if kind == block.EventPowerLoss {
		d.losses++
	}
	// Before the end of Open, which writes what the unit is without the executor, nobody holds anything of it.
	if d.opened && (kind == block.EventPowerLoss || kind == block.EventGeneration && !d.tracks) {
		d.touchRange(block.Range{Count: d.info.Sectors}) // nobody can say what has changed
	}
	if len(d.listen) == 0 && !slices.Contains(d.unheard, kind) {
		d.unheard = append(d.unheard, kind)
	}
	for _, fn := range d.listen {
		fn(block.Event{Kind: kind})
	}
}

// Notify registers a listener. The first one hears at once of what has happened since Open began.
func (d *Device) Notify(fn func(block.Event)) {
	d.listen = append(d.listen, fn)
	kinds := d.unheard
	d.unheard = nil
	for _, kind := range kinds {
		fn(block.Event{Kind: kind})
	}
}

// HeardPowerLoss reports whether the unit has said since Open began that it has lost power. It will
// not say so again, so whoever has heard of it and cannot keep it must have somebody else do that.
func (d *Device) HeardPowerLoss() bool { return d.losses > 0 }

// AssumePowerLoss tells of a loss of power of which an earlier process has heard, or may have.
func (d *Device) AssumePowerLoss() { d.tell(block.EventPowerLoss) }

// ask carries out a command of the device's own, which takes the unit little time. done is called
// on the executor.
func (d *Device) ask(c *Command, done func(*Command)) {
	c.Timed = true
	c.Done = func(*Command) {
		d.exec.Post(func() {
			if c.Lost == nil && c.key() == senseAttention {
				d.attention(c)
				if c.tries++; c.tries <= maxTries && !d.closed {
					d.t.Start(c)
					return
				}
			}
			done(c)
		})
	}
	d.t.Start(c)
}

// measureAgainNanos is the time after which the capacity is asked for again when there was no
// answer.
const measureAgainNanos = 1_000_000_000

// measure reads the capacity again. What says meanwhile that it may have changed has it read once
// more.
func (d *Device) measure() {
	if !d.opened || d.measuring != nil {
		d.remeasure = true
		return
	}
	if d.later != nil { // one is enough, however many have failed
		d.later.Stop()
		d.later = nil
	}
	d.said, d.recapacity, d.remeasure = d.said || d.recapacity, false, false
	d.measuring = &Command{CDB: readCapacity[:], In: [][]byte{make([]byte, capacityLen)}}
	d.ask(d.measuring, func(c *Command) {
		d.measuring = nil
		switch {
		case d.closed:
			return
		case c.Lost != nil || c.Status != statusGood || c.InLen < 16:
			d.later = d.exec.At(d.exec.Now()+measureAgainNanos, d.measure)
			return
		}
		d.measured(c.In[0][:c.InLen])
		if d.remeasure {
			d.measure()
		}
	})
}

// measured takes over a capacity and tells of a change. A unit whose blocks have another size is
// not the one that was opened: nothing more is sent to it. One that says that its capacity has
// changed may have been smaller than it is now, and have lost what was behind that end: who lists
// changes is asked for them, and of who does not, the same capacity can mean nothing else.
func (d *Device) measured(b []byte) {
	was, shift, said := d.info, d.shift, d.said
	d.said = false
	if err := d.setCapacity(b); err != nil || d.info.BlockSize != was.BlockSize {
		d.info, d.shift, d.closed = was, shift, true
		d.tell(block.EventGone)
		return
	}
	if now := d.info.Sectors; now < was.Sectors { // no later answer about changes covers that
		d.touchRange(block.Range{Start: now, Count: was.Sectors - now})
	}
	if d.info.Sectors != was.Sectors || d.info.Thin != was.Thin {
		d.tell(block.EventCapacity)
	}
	if said && (d.tracks || d.info.Sectors == was.Sectors) {
		d.recapacity = false // what it has said until now is in the answer to this
		d.tell(block.EventGeneration)
	}
}

const (
	capacityLen     = 32
	thinProvisioned = 0x80 | 0x40 // LBPME, LBPRZ
)

// readCapacity is READ CAPACITY(16).
var readCapacity = [16]byte{0: opServiceIn16, 1: 0x10, 13: capacityLen}

// setCapacity reads the answer of READ CAPACITY(16).
func (d *Device) setCapacity(b []byte) error {
	if len(b) < 16 {
		return fmt.Errorf("READ CAPACITY(16) gave %d bytes", len(b))
	}
	last, bs := be.Uint64(b), be.Uint32(b[8:])
	if bs != 512 && bs != 4096 {
		return fmt.Errorf("logical blocks of %d bytes are not supported", bs)
	}
	if last >= 1<<52 {
		return fmt.Errorf("a last logical block address of %#x is not supported", last)
	}
	d.shift = 0
	if bs == 4096 {
		d.shift = 3
	}
	i := &d.info
	i.BlockSize, i.Sectors = bs, (last+1)<<d.shift
	// Thin promises that what is unmapped reads as zeros. A unit with LBPME alone does not: it is thick for us.
	i.PhysicalExp, i.Thin = b[13]&0x0f, b[14]&thinProvisioned == thinProvisioned
	return nil
}
