package trace

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The binary records of blktrace (struct blk_io_trace of the kernel's include/uapi/linux/blktrace_api.h), in the
// byte order of the machine that was traced: 48 bytes, and a payload behind some.
const (
	blkRecord = 48
	blkMagic  = 0x65617400 // and the version in the lowest byte

	blkWrite   = 1 << (1 + 16) // categories of an action
	blkNotify  = 1 << (10 + 16)
	blkDiscard = 1 << (13 + 16)
)

// blkAction masks the number of the basic action out. The bit 1<<8 among them (__BLK_TA_CGROUP) says only that a control
// group's number follows the record.
const blkAction = 0xffff &^ (1 << 8)

// blkActions are the events that make a request, by the number of the basic action.
var blkActions = map[uint32]byte{1: 'Q', 7: 'D', 8: 'C'}

// blkEvent returns the event of a record that may make a request, 0 for others. A notification's number is not an action's
// (BLK_TN_TIMESTAMP is that of Q), a discard moves no data, and a flush has no bytes.
func blkEvent(o binary.ByteOrder, b []byte) byte {
	action := o.Uint32(b[28:])
	if action&(blkNotify|blkDiscard) != 0 || o.Uint32(b[24:]) == 0 {
		return 0
	}
	return blkActions[action&blkAction]
}

// blkOrder returns the byte order of a record, nil if it is none.
func blkOrder(b []byte) binary.ByteOrder {
	for _, o := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if o.Uint32(b)&^0xff == blkMagic {
			return o
		}
	}
	return nil
}

// blktrace is a binary trace of blktrace: of one processor, or of all if blkparse -d has put them together.
var blktrace = &format{
	name: "blktrace", about: "blktrace (binary; several processors combined by blkparse -d)", size: blkRecord, times: true,
	detect: func(head []byte, _ bool) bool { return len(head) >= blkRecord && blkOrder(head) != nil },
	tail: func(b []byte) int {
		if o := blkOrder(b); o != nil {
			return int(o.Uint16(b[46:]))
		}
		return 0
	},
	parse: func(r *Reader, b []byte, rec *Record) (bool, error) {
		o := blkOrder(b)
		if o == nil {
			return false, errBad("it does not begin with blktrace's number 0x656174")
		}
		if blkEvent(o, b) != r.action {
			return false, nil
		}
		ns, sector, bytes, device := o.Uint64(b[8:]), o.Uint64(b[16:]), o.Uint32(b[24:]), o.Uint32(b[36:])
		switch {
		case ns > math.MaxInt64:
			return false, errBad("its time is out of range")
		case sector > maxOffset/SectorSize:
			return false, errBad("it ends beyond 1 EiB")
		}
		if o.Uint32(b[28:])&blkWrite != 0 {
			rec.Op = Write
		}
		d, err := r.disk(fmt.Appendf(nil, "%d,%d", device>>20, device&(1<<20-1)))
		rec.Time, rec.Disk, rec.Offset, rec.Length = int64(ns), d, sector*SectorSize, bytes
		return err == nil, err
	},
}

// firstBinaryAction returns the best event of the beginning of a binary trace, as firstAction does of a text.
func firstBinaryAction(head []byte) byte {
	found := map[byte]bool{}
	for len(head) >= blkRecord {
		o := blkOrder(head)
		if o == nil {
			break
		}
		found[blkEvent(o, head)] = true
		head = head[min(len(head), blkRecord+int(o.Uint16(head[46:]))):]
	}
	for _, a := range []byte("QDC") {
		if found[a] {
			return a
		}
	}
	return 'Q'
}
