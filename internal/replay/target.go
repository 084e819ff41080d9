package replay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// Target is what a trace is replayed against. One is used by one goroutine.
type Target interface {
	// Size and BlockSize of the medium in bytes; requests are multiples of the latter.
	Size() int64
	BlockSize() int
	ReadAt(p []byte, off int64) error
	WriteAt(p []byte, off int64) error
	Close() error
}

// OpenTarget opens a LUN by its address ([iscsi.LoadAddress]), or a
// block device or file by its path. Each call makes a session of its own. It is
// opened for reading only unless write.
func OpenTarget(name string, write bool) (Target, error) {
	if !iscsi.IsAddress(name) {
		return openFile(name, write)
	}
	if _, err := iscsi.ParseAddress(name); err != nil {
		return nil, fmt.Errorf("target: %w, or give a block device or a file", err)
	}
	a, err := iscsi.LoadAddress(name)
	if err != nil {
		return nil, fmt.Errorf("target %w", err)
	}
	t, err := openUnit(a)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", iscsi.WithoutSecret(name), err)
	}
	return t, nil
}

// file is a block device or a file.
type file struct {
	f    *os.File
	size int64
}

func openFile(name string, write bool) (Target, error) {
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && size < fileBlock {
		err = errors.New("it is smaller than a block of 512 bytes; create it first, for example with truncate -s 1G")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("target %s: %w", name, err)
	}
	// What the page cache answers is no measurement.
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_RANDOM)
	return &file{f, size}, nil
}

const fileBlock = 512

func (f *file) Size() int64    { return f.size }
func (f *file) BlockSize() int { return fileBlock }
func (f *file) Close() error   { return f.f.Close() }

func (f *file) ReadAt(p []byte, off int64) error {
	_, err := f.f.ReadAt(p, off)
	return err
}

func (f *file) WriteAt(p []byte, off int64) error {
	_, err := f.f.WriteAt(p, off)
	return err
}

// unit is a logical unit over iSCSI.
type unit struct {
	c         *iscsi.Client
	number    uint64 // as in the PDU
	blocks    uint64
	blockSize int
	cdb       [16]byte
}

const (
	initiatorName = "iqn.2026-01.io.arraysim:replay"
	dialTimeout   = 10 * time.Second

	opReadCapacity16 = 0x9e
	opRead16         = 0x88
	opWrite16        = 0x8a

	statusGood           = 0x00
	statusCheckCondition = 0x02
	senseUnitAttention   = 0x06
)

// sessions counts the sessions of the process: each has an ISID of its own.
var sessions uint16

func openUnit(a iscsi.Address) (Target, error) {
	nc, err := net.DialTimeout("tcp", a.Portal, dialTimeout)
	if err != nil {
		return nil, err
	}
	sessions++
	cfg := iscsi.ClientConfig{
		Initiator: initiatorName, Target: a.Target, CHAP: a.CHAP,
		ISID: [6]byte{0x80, byte(os.Getpid() >> 8), byte(os.Getpid()), 0, byte(sessions >> 8), byte(sessions)},
	}
	c, err := iscsi.NewClient(nc, cfg)
	if err != nil {
		return nil, err
	}
	t := &unit{c: c, number: a.LUN}
	if err := t.capacity(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// command carries out the CDB in t.cdb; a unit attention is taken and forgotten.
func (t *unit) command(out []byte, inLen int) ([]byte, error) {
	for try := 0; ; try++ {
		res, err := t.c.Command(t.number, t.cdb[:], out, inLen)
		if err != nil {
			return nil, err
		}
		if res.Status == statusGood {
			if len(res.Data) < inLen {
				return nil, fmt.Errorf("the target returned %d of %d bytes", len(res.Data), inLen)
			}
			return res.Data, nil
		}
		if res.Status == statusCheckCondition && len(res.Sense) >= 14 {
			key, asc, ascq := res.Sense[2]&15, res.Sense[12], res.Sense[13]
			if res.Sense[0]&0x7f >= 0x72 { // descriptor format
				key, asc, ascq = res.Sense[1]&15, res.Sense[2], res.Sense[3]
			}
			if key == senseUnitAttention && try < 8 {
				continue
			}
			return nil, fmt.Errorf("operation %#02x ended with sense key %x, %02x/%02x", t.cdb[0], key, asc, ascq)
		}
		return nil, fmt.Errorf("operation %#02x ended with status %#02x", t.cdb[0], res.Status)
	}
}

func (t *unit) capacity() error {
	const length = 32
	t.cdb = [16]byte{0: opReadCapacity16, 1: 0x10, 13: length}
	d, err := t.command(nil, length)
	if err != nil {
		return err
	}
	t.blocks = be64(d) + 1
	t.blockSize = int(be64(d[4:12]) & 0xffffffff)
	if t.blockSize < 512 || t.blockSize > 64<<10 || t.blocks == 0 || t.blocks > 1<<50 {
		return fmt.Errorf("it reports %d blocks of %d bytes", t.blocks, t.blockSize)
	}
	return nil
}

func be64(b []byte) uint64 {
	n := uint64(0)
	for _, c := range b[:8] {
		n = n<<8 | uint64(c)
	}
	return n
}

// address makes the CDB of a READ(16) or WRITE(16).
func (t *unit) address(op byte, off int64, n int) {
	t.cdb = [16]byte{0: op}
	lba, blocks := uint64(off)/uint64(t.blockSize), uint32(n/t.blockSize)
	for i := range 8 {
		t.cdb[2+i] = byte(lba >> (56 - 8*i))
	}
	for i := range 4 {
		t.cdb[10+i] = byte(blocks >> (24 - 8*i))
	}
}

func (t *unit) Size() int64    { return int64(t.blocks) * int64(t.blockSize) }
func (t *unit) BlockSize() int { return t.blockSize }
func (t *unit) Close() error   { return t.c.Logout() }

func (t *unit) ReadAt(p []byte, off int64) error {
	t.address(opRead16, off, len(p))
	_, err := t.command(nil, len(p))
	return err
}

func (t *unit) WriteAt(p []byte, off int64) error {
	t.address(opWrite16, off, len(p))
	_, err := t.command(p, 0)
	return err
}
