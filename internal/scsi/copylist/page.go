// What hosts are told of the copy manager: the Third-party Copy VPD page, RECEIVE COPY OPERATING PARAMETERS.

package copylist

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
	be.PutUint16(limits[6:], MaxTokenRanges)
	be.PutUint32(limits[8:], MaxTokenTimeout)
	be.PutUint32(limits[12:], TokenTimeout)
	be.PutUint64(limits[16:], MaxTokenBytes/bs)
	be.PutUint64(limits[24:], BestTransferBytes/bs)
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
	be.PutUint16(p[4:], MaxCSCDs)
	be.PutUint16(p[6:], MaxSegments)
	be.PutUint32(p[8:], MaxDescriptorBytes)
	be.PutUint32(p[12:], 0) // no inline data
	add(tpcParameters, p)
	add(tpcDescriptors, append([]byte{byte(len(DescriptorCodes))}, DescriptorCodes[:]...))
	add(tpcCSCDIDs, []byte{0, 2, CSCDSelf >> 8, CSCDSelf & 0xFF})
	features := make([]byte, 44+48)
	be.PutUint32(features[12:], 1)               // MINIMUM TOKEN LIFETIME
	be.PutUint32(features[16:], 1<<32-1)         // MAXIMUM TOKEN LIFETIME: as long as it is used
	be.PutUint32(features[20:], MaxTokenTimeout) // MAXIMUM TOKEN INACTIVITY TIMEOUT
	be.PutUint16(features[42:], 48)
	block := features[44:] // block ROD device type specific features
	be.PutUint16(block[2:], 44)
	be.PutUint16(block[6:], uint16(max(u.Info().GranuleSectors>>u.Shift(), 1)))
	be.PutUint64(block[8:], MaxTokenBytes)
	be.PutUint64(block[16:], BestTransferBytes)
	be.PutUint64(block[24:], BestTransferBytes) // to a token
	be.PutUint64(block[32:], BestTransferBytes) // from a token
	add(tpcRODFeatures, features)
	const tokenOut, tokenIn = 0x01, 0x02
	types := make([]byte, 4+2*64)
	be.PutUint16(types[2:], 2*64)
	be.PutUint32(types[4:], RODPointInTime)
	types[4+4] = tokenOut | tokenIn
	be.PutUint32(types[4+64:], RODBlockZero)
	types[4+64+4] = tokenIn
	add(tpcRODTypes, types)
	g := make([]byte, 32)
	be.PutUint32(g[0:], MaxCopiesOfNexus) // TOTAL CONCURRENT COPIES
	be.PutUint32(g[4:], MaxCopiesOfNexus) // MAXIMUM IDENTIFIED CONCURRENT COPIES
	be.PutUint32(g[8:], MaxSegment)       // MAXIMUM SEGMENT LENGTH
	g[12] = Granularity
	add(tpcGeneral, g)
	return b
}

// Limits of ROD tokens, and their types.
const (
	MaxTokenRanges    = 128 // range descriptors of a command
	TokenTimeout      = 300 // default inactivity timeout, seconds
	MaxTokenTimeout   = 3600
	MaxTokenBytes     = 4 << 30 // of a token, and of a transfer
	BestTransferBytes = 64 << 20

	RODPointInTime = 0x00800000 // point in time copy - default
	RODBlockZero   = 0xFFFF0001 // the block device zero ROD token (SBC-4 4.29.4)
)

// Parameter data of RECEIVE COPY OPERATING PARAMETERS (SPC-4 6.19).
const (
	paramFlags       = 4
	paramSNLID       = 0x01
	paramCSCDs       = 8
	paramSegments    = 10
	paramListLen     = 12
	paramSegmentLen  = 16
	paramCopies      = 34
	paramIdentified  = 36
	paramGranularity = 37
	paramCodes       = 43
)

// Parameters serves RECEIVE COPY OPERATING PARAMETERS.
func Parameters(t *server.Task) {
	be := binary.BigEndian
	b := make([]byte, paramCodes+1, paramCodes+1+len(DescriptorCodes))
	b[paramFlags] = paramSNLID
	be.PutUint16(b[paramCSCDs:], MaxCSCDs)
	be.PutUint16(b[paramSegments:], MaxSegments)
	be.PutUint32(b[paramListLen:], MaxDescriptorBytes)
	be.PutUint32(b[paramSegmentLen:], MaxSegment)
	// What this nexus gets, not what the target has: more of them are BUSY.
	be.PutUint16(b[paramCopies:], MaxCopiesOfNexus)
	b[paramIdentified] = MaxCopiesOfNexus
	b[paramGranularity] = Granularity
	b[paramCodes] = byte(len(DescriptorCodes))
	ReplyAvailable(t, append(b, DescriptorCodes[:]...))
}

// ReplyAvailable sends parameter data that begins with AVAILABLE DATA, for a command with a 16-byte CDB.
func ReplyAvailable(t *server.Task, b []byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	t.Reply(b, int(min(binary.BigEndian.Uint32(t.CDB[10:]), 1<<30)))
}
