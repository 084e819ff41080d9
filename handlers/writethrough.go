package handlers

import "github.com/arraysim/arraysim/internal/scsi"

// The kernel's attribute emulate_write_cache is the WCE bit of a unit behind this
// door. At 0 no write ends before the back end has it: writes carry FUA, what has
// no such bit is followed by a flush, and the caching mode page says WCE=0. What
// copies write there, whichever unit gets the command, and also behind the end of
// one with IMMED, the copy manager flushes.
// The array's own cache stays as it is, and other doors of the array have none of it.

const (
	bitFUA   = 0x08
	bitWCE   = 0x04
	fuaLong  = 10 // byte of FUA in a variable length CDB
	pageMode = 0x3F
)

// forceFUA makes a write of cdb one that reaches the medium. It tells whether
// a flush has to follow instead.
func forceFUA(cdb []byte) (flush bool) {
	switch cdb[0] {
	case 0x2A, 0x8A, 0xAA, 0x89, 0x8B, 0x9C: // WRITE(10), (16), (12), COMPARE AND WRITE, ORWRITE(16), WRITE ATOMIC(16)
		cdb[1] |= bitFUA
	case 0x7F:
		switch {
		case len(cdb) <= fuaLong:
		case cdb[9] == 0x0B: // WRITE(32)
			cdb[fuaLong] |= bitFUA
		case cdb[9] == 0x0D: // WRITE SAME(32)
			return true
		}
	case 0x0A, 0x41, 0x93, 0x42: // WRITE(6), WRITE SAME(10), (16), UNMAP
		return true
	}
	return false
}

// isModeSense tells whether the caching page of a reply to cdb is to be changed: its
// current values, not the default or changeable ones.
func isModeSense(cdb []byte) bool { return (cdb[0] == 0x1A || cdb[0] == 0x5A) && cdb[2]>>6 == 0 }

// isModeSelect tells whether cdb brings mode pages.
func isModeSelect(cdb []byte) bool { return cdb[0] == 0x15 || cdb[0] == 0x55 }

// clearWCE takes WCE out of the caching page in the reply to MODE SENSE.
func clearWCE(op byte, reply [][]byte) {
	ofCaching(op, reply, func(flags *byte) { *flags &^= bitWCE })
}

// turnWCE turns WCE round in the caching page of a MODE SELECT: a host that sends what MODE SENSE has reported asks the array for
// what it has, and one that wants the other value for what cannot be changed.
func turnWCE(op byte, list [][]byte) { ofCaching(op, list, func(flags *byte) { *flags ^= bitWCE }) }

// ofCaching calls fn with the byte of WCE of each caching page (SBC-4 6.5.6) in the parameters of MODE SENSE or MODE SELECT.
func ofCaching(op byte, list [][]byte, fn func(flags *byte)) {
	at := func(i int) *byte {
		for _, s := range list {
			if i < len(s) {
				return &s[i]
			}
			i -= len(s)
		}
		return nil
	}
	n := 0
	for _, s := range list {
		n += len(s)
	}
	page := 4
	if op == 0x5A || op == 0x55 {
		page = 8
		if n < page {
			return
		}
		page += int(*at(6))<<8 | int(*at(7)) // block descriptors
	} else if n >= page {
		page += int(*at(3))
	}
	for page+2 < n {
		code, length := *at(page), 2+int(*at(page + 1))
		if code&0x40 != 0 { // SPF
			if page+3 >= n {
				return
			}
			length = 4 + (int(*at(page + 2))<<8 | int(*at(page + 3)))
		} else if code&pageMode == 0x08 {
			fn(at(page + 2))
		}
		page += length
	}
}

// setWriteThrough says whether the kernel's attribute is 0. No executor is held.
func (u *unit) setWriteThrough(on bool) {
	u.writeThrough.Store(on)
	enter(u.exec, func() { u.su.Medium().WriteThrough = on })
}

// sync has the unit's cache emptied behind the command that has ended; the command is answered when
// that has. It has been carried out, so no unit attention condition may be its answer: the initiator
// would send it again.
func (x *command) sync() {
	u := x.unit
	x.flush, x.synced = false, true
	enter(u.exec, func() {
		u.arrive(x)
		scsi.SyncCache(u.domain.nexus, u.lun, func(status byte, sense []byte) {
			x.task.Status, x.task.Sense = status, sense
			taskDone(&x.task)
		})
	})
}
