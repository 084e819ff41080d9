// Handler of INQUIRY. Package pages encodes the data; here is what they describe.

package spc

import (
	"encoding/binary"

	"github.com/arraysim/arraysim/internal/scsi/names"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Inquiry serves INQUIRY.
func Inquiry(t *server.Task) {
	allocation := int(binary.BigEndian.Uint16(t.CDB[3:]))
	page := t.CDB[2]
	if t.CDB[1]&1 == 0 {
		if page != 0 {
			t.Fault(sense.InCDB(2, 7))
			return
		}
		u, n := t.Unit(), t.Nexus()
		var b [pages.InquiryLen]byte
		t.Target().Product().Standard(b[:], pages.Unit{Removable: u.Removable(), SetsGroups: n.SetsGroups(), SeveralPorts: u.Target().ALUA().Several()})
		t.Reply(b[:], allocation)
		return
	}
	if p := t.Target().Commands().Page(page); p != nil {
		t.Reply(pages.EndVPD(p.Add(t.ITL(), pages.BeginVPD(page))), allocation)
		return
	}
	t.Fault(sense.InCDB(2, 7))
}

// SupportedPage makes the list of the pages.
func SupportedPage(x *server.ITL, b []byte) []byte {
	for _, p := range x.Unit().Target().Commands().Pages() {
		b = append(b, p.Code)
	}
	return b
}

// SerialNumberPage makes the Unit Serial Number page.
func SerialNumberPage(x *server.ITL, b []byte) []byte { return append(b, x.Unit().Info().Serial...) }

// IdentificationPage makes the Device Identification page.
func IdentificationPage(x *server.ITL, b []byte) []byte {
	u, n := x.Unit(), x.Nexus()
	port := names.PortDesignators(u.Target().Options().Name, n.TargetPort(), n.Group().ID, !n.Fabric())
	return pages.AppendIdentification(b, u.Names(), port, n.Fabric())
}

// ExtendedPage makes the Extended INQUIRY Data page.
func ExtendedPage(_ *server.ITL, b []byte) []byte { return pages.AppendExtended(b) }
