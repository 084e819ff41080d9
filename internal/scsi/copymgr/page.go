// The Third-party Copy VPD page: what the copy manager can, from the constants that it keeps.

package copymgr

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Third-party copy descriptor types (SPC-5 7.7.18).
const (
	tpcRODLimits   = 0x0000
	tpcCommands    = 0x0001
	tpcParameters  = 0x0004
	tpcDescriptors = 0x0008
	tpcCSCDIDs     = 0x000C
	tpcRODFeatures = 0x0106
	tpcRODTypes    = 0x0108
	tpcGeneral     = 0x8001
)

// ThirdPartyCopyPage makes the Third-party Copy page (SPC-5 7.7.18).
func ThirdPartyCopyPage(x *server.ITL, b []byte) []byte {
	u := x.Unit()
	be := binary.BigEndian
	add := func(kind uint16, body []byte) {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		b = be.AppendUint16(be.AppendUint16(b, kind), uint16(len(body)))
		b = append(b, body...)
	}
	bs := u.BlockSize()
	limits := make([]byte, 32) // behind 6 vendor specific bytes
	be.PutUint16(limits[6:], maxTokenRanges)
	be.PutUint32(limits[8:], maxTokenTimeout)
	be.PutUint32(limits[12:], tokenTimeout)
	be.PutUint64(limits[16:], maxTokenBytes/bs)
	be.PutUint64(limits[24:], bestTransferBytes/bs)
	add(tpcRODLimits, limits)
	var list []byte
	for _, op := range []byte{0x83, 0x84} {
		_, sas := u.Target().Commands().Served(op)
		list = append(list, op, byte(len(sas)))
		for _, c := range sas {
			list = append(list, byte(c.ServiceAction))
		}
	}
	add(tpcCommands, append([]byte{byte(len(list))}, list...))
	p := make([]byte, 28)
	be.PutUint16(p[4:], maxCSCDs)
	be.PutUint16(p[6:], maxSegments)
	be.PutUint32(p[8:], maxDescriptorBytes)
	be.PutUint32(p[12:], 0) // no inline data
	add(tpcParameters, p)
	add(tpcDescriptors, append([]byte{byte(len(copyDescriptorCodes))}, copyDescriptorCodes[:]...))
	add(tpcCSCDIDs, []byte{0, 2, cscdSelf >> 8, cscdSelf & 0xFF})
	features := make([]byte, 44+48)
	be.PutUint32(features[12:], 1)               // MINIMUM TOKEN LIFETIME
	be.PutUint32(features[16:], 1<<32-1)         // MAXIMUM TOKEN LIFETIME: as long as it is used
	be.PutUint32(features[20:], maxTokenTimeout) // MAXIMUM TOKEN INACTIVITY TIMEOUT
	be.PutUint16(features[42:], 48)
	block := features[44:] // block ROD device type specific features
	be.PutUint16(block[2:], 44)
	be.PutUint16(block[6:], uint16(max(u.Info().GranuleSectors>>u.Shift(), 1)))
	be.PutUint64(block[8:], maxTokenBytes)
	be.PutUint64(block[16:], bestTransferBytes)
	be.PutUint64(block[24:], bestTransferBytes) // to a token
	be.PutUint64(block[32:], bestTransferBytes) // from a token
	add(tpcRODFeatures, features)
	const tokenOut, tokenIn = 0x01, 0x02
	types := make([]byte, 4+2*64)
	be.PutUint16(types[2:], 2*64)
	be.PutUint32(types[4:], rodPointInTime)
	types[4+4] = tokenOut | tokenIn
	be.PutUint32(types[4+64:], rodBlockZero)
	types[4+64+4] = tokenIn
	add(tpcRODTypes, types)
	g := make([]byte, 32)
	be.PutUint32(g[0:], maxCopiesOfNexus) // TOTAL CONCURRENT COPIES
	be.PutUint32(g[4:], maxCopiesOfNexus) // MAXIMUM IDENTIFIED CONCURRENT COPIES
	be.PutUint32(g[8:], maxSegment)       // MAXIMUM SEGMENT LENGTH
	g[12] = segmentGranularity
	add(tpcGeneral, g)
	return b
}
