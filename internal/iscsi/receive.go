package iscsi

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

const (
	receiveBuffer = 256 << 10
	// Where commands use what is in the receive buffer, the next read goes behind it, as long as there
	// is this much room.
	receiveRoom = 64 << 10
	// Data segments with at least this much missing are read straight to their
	// place. After one, a read takes only so much beyond it: the next is likely
	// to be large too, and is then copied as little as possible.
	directMin  = 16 << 10
	afterLarge = 8 << 10
)

// receiver cuts the byte stream into PDUs. It owns no descriptor: space says
// where the next bytes belong, filled that they are there, next walks over them.
type receiver struct {
	mem  *receiveMemory
	buf  []byte // all of mem
	r, w int    // buf[r:w] is received and not yet looked at
	// behind is how many memories commands still use that are not mem any more: at most 1.
	behind   atomic.Int32
	replayed bool // hdr is of a PDU that was held, whose data is not in buf

	headerDigest, dataDigest bool
	maxSegment               int

	hdr    [bhsLen]byte
	ahsBuf [maxAHSLen]byte
	ahs    []byte

	// The data segment of the PDU that hdr describes.
	inData bool
	left   int      // bytes still to come
	tail   int      // then padding and digest
	dst    [][]byte // where the bytes go; they are skipped when it is empty
	places [][]byte // memory of dst
	crc    uint32
	large  bool // this or the last one was large

	into [][]byte // memory of a read: space, as one list
}

// space returns where the next read may put bytes: first direct, then rest.
func (rx *receiver) space() (direct [][]byte, rest []byte) {
	rx.compact()
	if rx.inData && rx.left >= directMin && len(rx.dst) > 0 {
		return rx.dst, rx.buf[rx.w : rx.w+afterLarge]
	}
	if rx.large {
		return nil, rx.buf[rx.w : rx.w+afterLarge]
	}
	return nil, rx.buf[rx.w:]
}

// filled accounts for n bytes that were read into what space returned.
func (rx *receiver) filled(direct [][]byte, n int) {
	if len(direct) > 0 {
		n -= rx.advance(n)
	}
	rx.w += n
}

// advance takes up to n bytes that lie in dst already.
func (rx *receiver) advance(n int) (took int) {
	for n > 0 && len(rx.dst) > 0 {
		k := min(n, len(rx.dst[0]))
		if rx.dataDigest {
			rx.crc = crc32c(rx.crc, rx.dst[0][:k])
		}
		if rx.dst[0] = rx.dst[0][k:]; len(rx.dst[0]) == 0 {
			rx.dst = rx.dst[1:]
		}
		n -= k
		took += k
	}
	rx.left -= took
	return took
}

// header takes a whole header, if it is there, and checks its lengths.
func (rx *receiver) header() (ok bool, err error) {
	have := rx.buf[rx.r:rx.w]
	if len(have) < bhsLen {
		return false, nil
	}
	n := bhsLen + bhs(have).ahsLen()
	total := n
	if rx.headerDigest {
		total += digestLen
	}
	if len(have) < total {
		return false, nil
	}
	copy(rx.hdr[:], have)
	rx.ahs = rx.ahsBuf[:copy(rx.ahsBuf[:], have[bhsLen:n])]
	if rx.headerDigest && binary.LittleEndian.Uint32(have[n:]) != crc32c(0, have[:n]) {
		return false, violation(ErrHeaderDigest, 0, "header digest is wrong")
	}
	rx.r += total
	rx.left = bhs(rx.hdr[:]).dataLen()
	if rx.left > rx.maxSegment {
		return false, violation(ErrPDU, rejectProtocol, "data segment of %d bytes, at most %d are accepted", rx.left, rx.maxSegment)
	}
	rx.tail = padLen(rx.left)
	if rx.dataDigest && rx.left > 0 {
		rx.tail += digestLen
	}
	rx.large = rx.left >= directMin
	rx.crc = 0
	rx.dst = nil
	rx.inData = true
	return true, nil
}

// data takes what is there of the data segment; done tells that it is complete.
func (rx *receiver) data() (done bool, err error) {
	have := rx.buf[rx.r:rx.w]
	if k := min(rx.left, len(have)); k > 0 {
		rx.r += k
		if len(rx.dst) == 0 {
			rx.skip(have[:k])
		} else {
			for src := have[:k]; len(src) > 0; {
				n := copy(rx.dst[0], src)
				rx.advance(n)
				src = src[n:]
			}
		}
		have = have[k:]
	}
	if rx.left > 0 || len(have) < rx.tail {
		return false, nil
	}
	rx.r += rx.tail
	rx.inData = false
	if !rx.dataDigest || rx.tail == 0 {
		return true, nil
	}
	pad := rx.tail - digestLen
	if crc32c(rx.crc, have[:pad]) != binary.LittleEndian.Uint32(have[pad:]) {
		return false, violation(ErrDataDigest, rejectDataDigest, "data digest is wrong")
	}
	return true, nil
}

func (rx *receiver) skip(b []byte) {
	if rx.dataDigest {
		rx.crc = crc32c(rx.crc, b)
	}
	rx.left -= len(b)
}

// compact makes room for a read: what is left, less than a header or a tail, moves to the front of
// the buffer, or of another one when commands use this one and are about to fill it.
func (rx *receiver) compact() {
	to := rx.mem
	if rx.mem.users.Load() > 1 {
		if len(rx.buf)-rx.w >= receiveRoom {
			return
		}
		to = newReceiveMemory()
	}
	if to == rx.mem && rx.r == 0 {
		return
	}
	rx.w = copy(to.b[:], rx.buf[rx.r:rx.w])
	rx.r = 0
	if to != rx.mem {
		rx.behind.Add(1)
		rx.mem.behind = &rx.behind
		rx.mem.leave()
		rx.use(to)
	}
}

func (rx *receiver) use(m *receiveMemory) { rx.mem, rx.buf = m, m.b[:] }

// lend leaves the data segment under way where it is received, for a command to use until it calls
// leave; nil when it is not all here, or commands use another memory yet: what they take
// together is bounded.
func (rx *receiver) lend() (data []byte, m *receiveMemory) {
	if rx.replayed || rx.w-rx.r < rx.left || rx.behind.Load() > 0 {
		return nil, nil
	}
	rx.mem.users.Add(1)
	return rx.buf[rx.r : rx.r+rx.left : rx.r+rx.left], rx.mem
}

// receiveMemory is a receive buffer with those who use it: a reader, and commands whose data lies
// in it. The last one gives it back.
type receiveMemory struct {
	users  atomic.Int32
	behind *atomic.Int32 // counts it, once its reader has left
	b      [receiveBuffer]byte
}

var receiveMemories = sync.Pool{New: func() any { return new(receiveMemory) }}

// newReceiveMemory returns one with its first user.
func newReceiveMemory() *receiveMemory {
	m := receiveMemories.Get().(*receiveMemory)
	m.users.Store(1)
	return m
}

// leave ends a use. Any goroutine may call it.
func (m *receiveMemory) leave() {
	if m.users.Add(-1) > 0 {
		return
	}
	if m.behind != nil {
		m.behind.Add(-1)
		m.behind = nil
	}
	receiveMemories.Put(m)
}
