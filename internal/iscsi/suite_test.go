package iscsi

import (
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// dataInOps are the commands with Data-In among those that the suite hands both a
// payload and a buffer: on the wire a command has one direction.
var dataInOps = []byte{0x03, 0x08, 0x12, 0x1A, 0x25, 0x28, 0x5A, 0x5E, 0x84, 0x88, 0x9E, 0xA0, 0xA3, 0xA8}

// wired is the suite's initiator over iSCSI.
type wired struct {
	t      testing.TB
	c      *Client
	closed bool
}

func wireLUN(lun uint64) uint64 {
	if lun > 255 {
		lun |= 0x4000 // flat space addressing (SAM-5 4.7.7.4)
	}
	return lun << 48
}

func (w *wired) Do(cmd scsitest.Command) scsitest.Result {
	w.t.Helper()
	out, in := cmd.Out, cmd.In
	switch {
	case len(out) == 0 || in == 0:
	case slices.Contains(dataInOps, cmd.CDB[0]):
		out = nil
	default:
		in = 0
	}
	r, err := w.c.Command(wireLUN(cmd.LUN), cmd.CDB, out, in)
	if err != nil {
		w.t.Fatalf("cdb %x: %v", cmd.CDB, err)
	}
	if r.Status == scsi.StatusGood && in > 0 {
		if want := min(in, in+r.Residual); len(r.Data) != want {
			w.t.Fatalf("cdb %x: %d bytes came, the residual says %d", cmd.CDB, len(r.Data), want)
		}
	}
	return scsitest.Result{Status: r.Status, Sense: r.Sense, In: r.Data, Residual: r.Residual}
}

func (w *wired) Reset(lun uint64) {
	w.t.Helper()
	r, err := w.c.Manage(scsi.LogicalUnitReset, wireLUN(lun), noTag, 0)
	if err != nil || r != scsi.TMFComplete {
		w.t.Fatalf("LOGICAL UNIT RESET: response %d, %v", r, err)
	}
}

// Close logs out; a second one does nothing, like that of a scsi.Nexus.
func (w *wired) Close() {
	w.t.Helper()
	if w.closed {
		return
	}
	w.closed = true
	if err := w.c.Logout(); err != nil {
		w.t.Fatalf("logout: %v", err)
	}
}

// The SCSI layer's suite over the wire.
func TestSuite(t *testing.T) {
	variants := []struct {
		name   string
		limits Limits
		keys   map[string]string
	}{
		{"defaults", Limits{}, nil},
		{"digests, small bursts", Limits{MaxRecvSegment: 512}, map[string]string{
			keyHeaderDigest: digestCRC32C, keyDataDigest: digestCRC32C, keyInitialR2T: valYes, keyImmediateData: valNo,
			keyFirstBurst: "512", keyMaxBurst: "1536", keyMaxRecvSegment: "512", keyMaxR2T: "2",
		}},
	}
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			scsitest.Run(t, func(t *testing.T) func(string) scsitest.Initiator {
				var devs []*scsitest.Device
				var tg *scsi.Target
				r := newRig(t, func(cfg *Config) {
					tg, devs = scsitest.NewTarget(cfg.Targets[0].Handler.Exec())
					cfg.Targets = []TargetConfig{{Name: testTarget, Target: tg}}
					ping := cfg.Limits.PingInterval
					cfg.Limits = v.limits
					cfg.Limits.PingInterval = ping
				})
				t.Cleanup(func() {
					r.exec.Lock()
					defer r.exec.Unlock()
					tg.RevokeTokens()
					for _, d := range devs {
						if d.Refs != 0 {
							t.Errorf("%s: %d references are not released", d.Info().Name, d.Refs)
						}
					}
				})
				return func(name string) scsitest.Initiator {
					return &wired{t: t, c: r.login(func(cfg *ClientConfig) { cfg.Initiator, cfg.Keys = name, v.keys })}
				}
			})
		})
	}
}
