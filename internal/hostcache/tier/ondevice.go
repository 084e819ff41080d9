package tier

import (
	"errors"

	"github.com/arraysim/arraysim/internal/block"
)

// OnDevice makes a medium of a device, such as the LUN that a peer lends. When the device loses
// power, what was written and not synced is gone though it was acknowledged: then nothing succeeds
// any more, so that the flash is left out and nothing old is read from it. A loss that it tells of before
// anything was sent is one of what an earlier process has sent: see LostPower.
func OnDevice(dev block.Device) block.Medium {
	m := &deviceMedium{dev: dev}
	dev.Notify(func(e block.Event) {
		switch {
		case e.Kind != block.EventPowerLoss:
		case m.sent == 0 && !m.asked:
			m.before = true
		case m.sent == 0 || m.synced != m.sent:
			m.lost = true
		}
	})
	return m
}

// errPowerLost is the error of whatever is asked of a device that has lost power.
var errPowerLost = errors.New("hostcache/tier: the device lost power, and with it the data written to it")

type deviceMedium struct {
	dev         block.Device
	sent, ended uint64 // writes
	synced      uint64 // of those that have ended, how many survive a loss of power
	lost        bool
	before      bool // it lost power before anything was sent
	asked       bool // whether it did; what it loses from then on, nobody would hear of
}

// LostPower reports whether what an earlier process has written, and not synced, may be gone.
func (m *deviceMedium) LostPower() bool {
	m.asked = true
	return m.before
}

func (m *deviceMedium) Size() uint64 { return m.dev.Info().Sectors << block.SectorShift }

func (m *deviceMedium) Submit(ios []*block.IO) {
	reqs := make([]*block.Request, len(ios))
	for i, io := range ios {
		r := &block.Request{Op: block.OpRead, Range: block.Range{Start: io.Off >> block.SectorShift, Count: io.N >> block.SectorShift}, Data: io.Vec, Ctx: io}
		if io.Write {
			r.Op = block.OpWrite
			m.sent++
		}
		r.Done = func(r *block.Request) {
			io := r.Ctx.(*block.IO)
			if io.Write {
				m.ended++
			}
			if io.Err = statusError(r.Status); io.Err == nil && m.lost {
				io.Err = errPowerLost
			}
			io.Done(io)
		}
		reqs[i] = r
	}
	m.dev.Submit(reqs)
}

func (m *deviceMedium) Sync(done func(error)) {
	ended := m.ended
	m.dev.Submit([]*block.Request{{Op: block.OpFlush, Done: func(r *block.Request) {
		err := statusError(r.Status)
		if err == nil && m.lost {
			err = errPowerLost
		}
		if err == nil {
			m.synced = max(m.synced, ended)
		}
		done(err)
	}}})
}
