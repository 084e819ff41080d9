package admin

import (
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// dial logs in as an initiator.
func (r *running) dial(name string) (*iscsi.Client, error) {
	nc, err := net.Dial("tcp", r.d.portalAddr.String())
	if err != nil {
		return nil, err
	}
	return iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: name, Target: "iqn.2026-01.io.arraysim:array"})
}

// TestThousandLUNs: a thousand volumes are made, exported and found by one initiator, over the wire. (Under the race detector,
// which takes its time to make them, it is a hundred.)
func TestThousandLUNs(t *testing.T) {
	luns := 1000
	if underRace {
		luns = 100
	}
	var b strings.Builder
	b.WriteString(`
store: memory
cache: {size: 8MiB}
portal: {listen: "127.0.0.1:0"}
metrics: {listen: "127.0.0.1:0"}
pools: [{name: p, mdisks: [{name: m, size: 4GiB}]}]
volumes:
`)
	for i := range luns {
		fmt.Fprintf(&b, "  - {name: v%d, pool: p, size: 1GiB, export: {lun: %d}}\n", i, i)
	}
	r := runningDaemon(t, b.String(), filepath.Join(t.TempDir(), "d"))
	c, err := r.dial("iqn.2026-01.host:a")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := c.Command(0, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0}, nil, 0x4000)
	if err != nil || res.Status != scsi.StatusGood || int(binary.BigEndian.Uint32(res.Data)) != 8*luns {
		t.Fatalf("REPORT LUNS: %v %v", res, err)
	}
	list := res.Data[8:]
	names := map[string]bool{}
	for i := range luns {
		lun := binary.BigEndian.Uint64(list[8*i:])
		id, err := c.Command(lun, []byte{0x12, 1, 0x80, 0, 255, 0}, nil, 255)
		if err != nil || id.Status != scsi.StatusGood {
			t.Fatalf("LUN %x: %v %v", lun, id, err)
		}
		names[string(id.Data)] = true
	}
	if len(names) != luns {
		t.Errorf("%d serial numbers for %d units", len(names), luns)
	}
	// The last one works like the first.
	lun := binary.BigEndian.Uint64(list[8*(luns-1):])
	for range 3 { // unit attentions
		res, err = c.Command(lun, scsitest.CDB(0x93, 0, 2048), make([]byte, 512), 0)
	}
	if err != nil || res.Status != scsi.StatusGood {
		t.Errorf("WRITE SAME on the last unit: %v %v", res, err)
	}
}

func runningDaemon(t *testing.T, text, folder string) *running {
	t.Helper()
	return start(t, parse(t, text, folder))
}

// TestConfiguredSessions: what the configuration allows is what the portal allows.
func TestConfiguredSessions(t *testing.T) {
	text := strings.Replace(testConfig, `listen: "127.0.0.1:0"`, `listen: "127.0.0.1:0", sessions: 2`, 1)
	r := runningDaemon(t, text, filepath.Join(t.TempDir(), "d"))
	for i := range 3 {
		c, err := r.dial(fmt.Sprintf("iqn.2026-01.host:%d", i))
		if (err == nil) != (i < 2) {
			t.Errorf("session %d: %v", i, err)
		}
		if err == nil {
			defer c.Close()
		}
	}
}
