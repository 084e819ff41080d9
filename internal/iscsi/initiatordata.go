package iscsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi"
)

// dataOut queues a sequence of Data-Out.
func (i *Initiator) dataOut(cmd *Command, ttt uint32, off, n int) {
	for sn := uint32(0); n > 0; sn++ {
		var hdr [bhsLen]byte
		h := bhs(hdr[:])
		k := min(n, i.c.maxSend)
		h[0] = opDataOut
		if k == n {
			h[offFlags] = flagFinal
		}
		binary.BigEndian.PutUint64(h[offLUN:], cmd.LUN)
		h.put32(offITT, cmd.itt)
		h.put32(offTTT, ttt)
		h.put32(offExpStatSN, i.expStat)
		h.put32(offDataSN, sn)
		h.put32(offBufOffset, uint32(off))
		i.out = appendPDU(i.out, h, nil, piece(cmd.Out, off, k), i.c.p.headerDigest, i.c.p.dataDigest)
		off += k
		n -= k
	}
}

// piece returns n bytes of v from off on, in one slice.
func piece(v [][]byte, off, n int) []byte {
	if n == 0 {
		return nil
	}
	for k, b := range v {
		if off >= len(b) {
			off -= len(b)
			continue
		}
		if len(b)-off >= n {
			return b[off : off+n]
		}
		out := append(make([]byte, 0, n), b[off:]...)
		for _, b := range v[k+1:] {
			out = append(out, b[:min(len(b), n-len(out))]...)
		}
		return out
	}
	return nil
}

// scatter copies b into v at off; false if it does not fit.
func scatter(v [][]byte, off int, b []byte) bool {
	for _, d := range v {
		if off >= len(d) {
			off -= len(d)
			continue
		}
		b = b[copy(d[off:], b):]
		off = 0
		if len(b) == 0 {
			return true
		}
	}
	return len(b) == 0
}

// failureSense is HARDWARE ERROR, INTERNAL TARGET FAILURE in fixed format. It stands for a command that its target did not complete.
var failureSense = [18]byte{0: 0x70, 2: 0x04, 7: 10, 12: 0x44}

// failed tells whether the PDU that ends a command says that it was not carried out as a whole although no status does: a
// response code that makes the status meaningless (RFC 7143 11.4.3), or GOOD for a write of which not all was taken. Whether all
// was asked for it does not know.
func failed(h bhs, write bool) bool {
	if h.opcode() == opResponse && h[offResponse] != 0 {
		return true
	}
	return write && h[offStatus] == scsi.StatusGood && h[offFlags]&(flagOverflow|flagUnderflow) != 0 && h.u32(offResidual) > 0
}
