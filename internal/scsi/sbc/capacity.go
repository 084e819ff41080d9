// Handlers of READ CAPACITY, and the vital product data pages of block devices.

package sbc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Parameter data of READ CAPACITY(16) (SBC-4 5.21).
const (
	capacityLen = 32
)

// ReadCapacity10 serves READ CAPACITY(10).
func ReadCapacity10(t *server.Task) {
	u := t.Unit()
	if t.CDB[2]|t.CDB[3]|t.CDB[4]|t.CDB[5] != 0 { // the LBA is obsolete with PMI=0
		t.Fault(sense.InCDB(2, 7))
		return
	}
	var b [8]byte
	binary.BigEndian.PutUint32(b[0:], uint32(min(u.LastLBA(), 1<<32-1)))
	binary.BigEndian.PutUint32(b[4:], uint32(u.BlockSize()))
	t.Reply(b[:], len(b))
}

// ReadCapacity16 serves READ CAPACITY(16).
func ReadCapacity16(t *server.Task) {
	u := t.Unit()
	var b [capacityLen]byte
	binary.BigEndian.PutUint64(b[0:], u.LastLBA())
	binary.BigEndian.PutUint32(b[8:], uint32(u.BlockSize()))
	b[13] = u.Info().PhysicalExp & 0x0F
	if u.Info().Thin {
		b[14] = pages.ThinProvisioned
	}
	t.Reply(b[:], int(min(binary.BigEndian.Uint32(t.CDB[10:]), capacityLen)))
}

// BlockLimitsPage makes the Block Limits page.
func BlockLimitsPage(x *server.ITL, b []byte) []byte {
	u := x.Unit()
	bs := uint32(u.BlockSize())
	return pages.AppendLimits(b, pages.Limits{
		Compare:     byte(maxCompare(u)),
		Granularity: 1 << min(u.Info().PhysicalExp, 15),
		Transfer:    maxTransferBytes / bs,
		Optimal:     optTransferBytes / bs,
		Thin:        u.Info().Thin,
		Unmap:       maxUnmapBlocks,
		UnmapRanges: maxUnmapRanges,
		Granule:     max(u.Info().GranuleSectors>>u.Shift(), 1),
		WriteSame:   maxWriteSame,
		Atomic:      uint32(u.AtomicBlocks()),
	})
}

// CharacteristicsPage makes the Block Device Characteristics page.
func CharacteristicsPage(_ *server.ITL, b []byte) []byte { return pages.AppendCharacteristics(b) }

// ProvisioningPage makes the Logical Block Provisioning page.
func ProvisioningPage(x *server.ITL, b []byte) []byte {
	u := x.Unit()
	return pages.AppendProvisioning(b, u.Info().Thin, u.Pool().Exponent(u.Shift()))
}
