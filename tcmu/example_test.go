package tcmu_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/arraysim/arraysim/tcmu"
)

// A RAM disk that targetcli makes by
//
//	/backstores/user:ram create name=disk0 size=64M cfgstring=any
type ram struct{}

func (ram) Name() string       { return "ram" }
func (ram) Describe() string   { return "any text; it is not looked at" }
func (ram) Check(string) error { return nil }
func (ram) Open(d *tcmu.Device) (tcmu.Handler, error) {
	return disk{mem: make([]byte, d.Info().Size), block: uint64(d.Info().BlockSize)}, nil
}

type disk struct {
	mem   []byte
	block uint64
}

var invalid = []byte{0: 0x70, 2: 5, 7: 10, 12: 0x24, 17: 0} // ILLEGAL REQUEST, INVALID FIELD IN CDB

func (r disk) Close() {}

func (r disk) Serve(batch []*tcmu.Command) {
	be := binary.BigEndian
	for _, c := range batch {
		switch c.CDB[0] {
		case 0x00, 0x35: // TEST UNIT READY, SYNCHRONIZE CACHE(10)
			c.Complete(0, nil, tcmu.All)
		case 0x12: // INQUIRY: a disk, SPC-3
			r.reply(c, append([]byte{0, 0, 5, 2, 31, 0, 0, 2}, "EXAMPLE RAM DISK        0001"...))
		case 0x1A: // MODE SENSE(6): no pages
			r.reply(c, []byte{3, 0, 0, 0})
		case 0x25: // READ CAPACITY(10)
			last := be.AppendUint32(nil, uint32(uint64(len(r.mem))/r.block-1))
			r.reply(c, be.AppendUint32(last, uint32(r.block)))
		case 0x28, 0x2A: // READ(10), WRITE(10)
			at := uint64(be.Uint32(c.CDB[2:])) * r.block
			n := uint64(be.Uint16(c.CDB[7:])) * r.block
			if at+n > uint64(len(r.mem)) || n > uint64(c.Len()) {
				c.Complete(2, invalid, 0)
				continue
			}
			mem := r.mem[at : at+n]
			for _, s := range c.Data {
				if c.CDB[0] == 0x28 {
					mem = mem[copy(s, mem):]
				} else {
					mem = mem[copy(mem, s):]
				}
			}
			c.Complete(0, nil, tcmu.All)
		default:
			c.Complete(2, invalid, 0)
		}
	}
}

func (disk) reply(c *tcmu.Command, b []byte) {
	n := 0
	for _, s := range c.Data {
		n += copy(s, b[n:])
	}
	c.Complete(0, nil, n)
}

// A RAM disk in the place of tcmu-runner.
func Example() {
	server, err := tcmu.Start(tcmu.Options{Subtypes: []tcmu.Subtype{ram{}}, DBus: true})
	if err != nil {
		fmt.Fprintln(io.Discard, err) // needs root and a kernel with TCMU
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := server.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
	}
}
