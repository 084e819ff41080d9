package replay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
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

// OpenTarget opens a LUN by its URL, iscsi://[user[%secret]@]host[:port]/iqn/lun, or a
// block device or file by its path. Each call makes a session of its own. It is
// opened for reading only unless write.
func OpenTarget(name string, write bool) (Target, error) {
	if strings.HasPrefix(name, "iscsi://") {
		t, err := openLUN(name)
		if err != nil {
			return nil, fmt.Errorf("target %s: %w", hideSecret(name), err)
		}
		return t, nil
	}
	if scheme, _, ok := strings.Cut(name, "://"); ok {
		return nil, fmt.Errorf("target %s: %s:// is not known; give iscsi://host/iqn/lun, a block device or a file", name, scheme)
	}
	return openFile(name, write)
}

// hideSecret is a URL without the CHAP secret.
func hideSecret(name string) string {
	head, tail, ok := strings.Cut(name, "@")
	if user, _, secret := strings.Cut(strings.TrimPrefix(head, "iscsi://"), "%"); ok && secret {
		return "iscsi://" + user + "%***@" + tail
	}
	return name
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
		err = errors.New("it is smaller than a block of 512 bytes; make it first, for example by truncate -s 1G")
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

// lun is a logical unit over iSCSI.
type lun struct {
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

func openLUN(name string) (Target, error) {
	u, err := parseLUN(name)
	if err != nil {
		return nil, err
	}
	nc, err := net.DialTimeout("tcp", u.address, dialTimeout)
	if err != nil {
		return nil, err
	}
	sessions++
	cfg := iscsi.ClientConfig{
		Initiator: initiatorName, Target: u.target, CHAP: u.chap,
		ISID: [6]byte{0x80, byte(os.Getpid() >> 8), byte(os.Getpid()), 0, byte(sessions >> 8), byte(sessions)},
	}
	c, err := iscsi.NewClient(nc, cfg)
	if err != nil {
		return nil, err
	}
	t := &lun{c: c, number: u.lun}
	if err := t.capacity(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

type lunAddress struct {
	address, target string
	lun             uint64
	chap            *iscsi.CHAP
}

func parseLUN(name string) (lunAddress, error) {
	usage := errors.New("write it as iscsi://[user[%secret]@]host[:port]/iqn/lun")
	rest := strings.TrimPrefix(name, "iscsi://")
	var a lunAddress
	if cred, host, ok := strings.Cut(rest, "@"); ok {
		user, secret, _ := strings.Cut(cred, "%")
		if s, err := url.PathUnescape(secret); err == nil {
			secret = s
		}
		a.chap = &iscsi.CHAP{User: user, Secret: []byte(secret)}
		rest = host
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return a, usage
	}
	n, err := strconv.ParseUint(parts[2], 10, 14)
	if err != nil {
		return a, usage
	}
	a.address, a.target = parts[0], parts[1]
	if _, _, err := net.SplitHostPort(a.address); err != nil {
		a.address = net.JoinHostPort(strings.Trim(a.address, "[]"), "3260")
	}
	// SAM-5 4.7: peripheral device addressing below 256, flat space above.
	a.lun = n << 48
	if n >= 256 {
		a.lun |= 1 << 62
	}
	return a, nil
}

// command carries out the CDB in t.cdb; a unit attention is taken and forgotten.
func (t *lun) command(out []byte, inLen int) ([]byte, error) {
	for try := 0; ; try++ {
		res, err := t.c.Command(t.number, t.cdb[:], out, inLen)
		if err != nil {
			return nil, err
		}
		if res.Status == statusGood {
			if len(res.Data) < inLen {
				return nil, fmt.Errorf("the target gave %d of %d bytes", len(res.Data), inLen)
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

func (t *lun) capacity() error {
	const length = 32
	t.cdb = [16]byte{0: opReadCapacity16, 1: 0x10, 13: length}
	d, err := t.command(nil, length)
	if err != nil {
		return err
	}
	t.blocks = be64(d) + 1
	t.blockSize = int(be64(d[4:12]) & 0xffffffff)
	if t.blockSize < 512 || t.blockSize > 64<<10 || t.blocks == 0 || t.blocks > 1<<50 {
		return fmt.Errorf("it says that it has %d blocks of %d bytes", t.blocks, t.blockSize)
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
func (t *lun) address(op byte, off int64, n int) {
	t.cdb = [16]byte{0: op}
	lba, blocks := uint64(off)/uint64(t.blockSize), uint32(n/t.blockSize)
	for i := range 8 {
		t.cdb[2+i] = byte(lba >> (56 - 8*i))
	}
	for i := range 4 {
		t.cdb[10+i] = byte(blocks >> (24 - 8*i))
	}
}

func (t *lun) Size() int64    { return int64(t.blocks) * int64(t.blockSize) }
func (t *lun) BlockSize() int { return t.blockSize }
func (t *lun) Close() error   { return t.c.Logout() }

func (t *lun) ReadAt(p []byte, off int64) error {
	t.address(opRead16, off, len(p))
	_, err := t.command(nil, len(p))
	return err
}

func (t *lun) WriteAt(p []byte, off int64) error {
	t.address(opWrite16, off, len(p))
	_, err := t.command(p, 0)
	return err
}
