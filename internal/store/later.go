package store

import "github.com/arraysim/arraysim/internal/block"

// submitLater is Submit in virtual time: what may wait is one call, later, on the executor. It
// does the transfers in their order, and ends all of them together.
func (m *fileMedium) submitLater(ios []*block.IO) {
	var rest []*block.IO
	var x xfer
	for _, io := range ios {
		if x.io = io; !io.Write && !m.s.closed && m.readNow(&x) {
			io.Done(io)
			continue
		}
		rest = append(rest, io)
	}
	if len(rest) == 0 {
		return
	}
	m.s.call(nil, m, func() error {
		for _, io := range rest {
			if io.Err = errAbandoned; io.Write || io.Vec != nil {
				io.Err = m.transferOften(io, &scratch{})
			}
		}
		return nil
	}, func(err error) {
		for _, io := range rest {
			if err != nil {
				io.Err = err
			}
			io.Done(io)
		}
	})
}
