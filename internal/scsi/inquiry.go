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
		u.t.opt.product().Standard(b[:], pages.Unit{Removable: u.opt.Removable, SetsGroups: n.setsGroups(), SeveralPorts: u.t.groups.Several()})
		t.reply(b[:], allocation)
		return
	}
	for i := range vpds {
		if p := &vpds[i]; p.code == page {
			t.reply(pages.EndVPD(p.add(t.state.u, t.state.n, pages.BeginVPD(page))), allocation)
			return
		}
	}
	t.fault(sense.InCDB(2, 7))
}

// product is what INQUIRY says of all units alike.
func (o *Options) product() *pages.Product {
	return &pages.Product{Vendor: o.Vendor, Product: o.Product, Revision: o.Revision}
}

// vpd is a vital product data page; its codes are in ascending order.
type vpd struct {
	code byte
	add  func(u *Unit, n *Nexus, b []byte) []byte // appends the page behind its header
}

var vpds []vpd

func init() {
	vpds = []vpd{
		{0x00, vpdSupported}, {0x80, vpdSerial}, {0x83, vpdIdentification}, {0x86, vpdExtended},
		{0x8F, vpdThirdParty}, {0xB0, vpdBlockLimits}, {0xB1, vpdCharacteristics}, {0xB2, vpdProvisioning},
	}
}

func vpdSupported(_ *Unit, _ *Nexus, b []byte) []byte {
	for i := range vpds {
		b = append(b, vpds[i].code)
	}
	return b
}

func vpdSerial(u *Unit, _ *Nexus, b []byte) []byte { return append(b, u.info.Serial...) }

func vpdIdentification(u *Unit, n *Nexus, b []byte) []byte {
	port := names.PortDesignators(u.t.opt.Name, n.targetPort, n.group.ID, !n.fabric)
	return pages.AppendIdentification(b, u.names, port, n.fabric)
}

func vpdExtended(_ *Unit, _ *Nexus, b []byte) []byte { return pages.AppendExtended(b) }

// vpdBlockLimits makes the Block Limits page.
func vpdBlockLimits(u *Unit, _ *Nexus, b []byte) []byte {
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

func vpdCharacteristics(_ *Unit, _ *Nexus, b []byte) []byte { return pages.AppendCharacteristics(b) }

// vpdProvisioning makes the Logical Block Provisioning page.
func vpdProvisioning(u *Unit, _ *Nexus, b []byte) []byte {
	var exponent byte
	if u.provisioner != nil {
		exponent = u.thresholdExponent()
	}
	return pages.AppendProvisioning(b, u.info.Thin, exponent)
}
