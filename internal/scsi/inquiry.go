// Handler of INQUIRY. Package pages encodes the data; here is what they describe.

package scsi

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
)

// doInquiry serves INQUIRY.
func doInquiry(t *Task) {
	allocation := int(binary.BigEndian.Uint16(t.CDB[3:]))
	page := t.CDB[2]
	if t.CDB[1]&1 == 0 {
		if page != 0 {
			t.fault(sense.InCDB(2, 7))
			return
		}
		u, n := t.state.u, t.state.n
		var b [pages.InquiryLen]byte
		t.target().product().Standard(b[:], pages.Unit{Removable: u.opt.Removable, SetsGroups: n.setsGroups(), SeveralPorts: u.t.groups.Several()})
		t.reply(b[:], allocation)
		return
	}
	if p := t.target().commands.page(page); p != nil {
		t.reply(pages.EndVPD(p.add(t.itl(), pages.BeginVPD(page))), allocation)
		return
	}
	t.fault(sense.InCDB(2, 7))
}

func vpdSupported(x *itl, b []byte) []byte {
	for _, p := range x.u.t.commands.pages {
		b = append(b, p.code)
	}
	return b
}

func vpdSerial(x *itl, b []byte) []byte { return append(b, x.u.info.Serial...) }

func vpdIdentification(x *itl, b []byte) []byte {
	u, n := x.u, x.n
	port := names.PortDesignators(u.t.opt.Name, n.targetPort, n.group.ID, !n.fabric)
	return pages.AppendIdentification(b, u.names, port, n.fabric)
}

func vpdExtended(_ *itl, b []byte) []byte { return pages.AppendExtended(b) }

// vpdBlockLimits makes the Block Limits page.
func vpdBlockLimits(x *itl, b []byte) []byte {
	u := x.u
	bs := uint32(u.blockSize())
	return pages.AppendLimits(b, pages.Limits{
		Compare:     maxCompareBlocks,
		Granularity: 1 << min(u.info.PhysicalExp, 15),
		Transfer:    maxTransferBytes / bs,
		Optimal:     optTransferBytes / bs,
		Thin:        u.info.Thin,
		Unmap:       maxUnmapBlocks,
		UnmapRanges: maxUnmapRanges,
		Granule:     max(u.info.GranuleSectors>>u.shift, 1),
		WriteSame:   maxWriteSame,
		Atomic:      uint32(u.atomicBlocks()),
	})
}

func vpdCharacteristics(_ *itl, b []byte) []byte { return pages.AppendCharacteristics(b) }

// vpdProvisioning makes the Logical Block Provisioning page.
func vpdProvisioning(x *itl, b []byte) []byte {
	u := x.u
	var exponent byte
	if u.provisioner != nil {
		exponent = u.thresholdExponent()
	}
	return pages.AppendProvisioning(b, u.info.Thin, exponent)
}
