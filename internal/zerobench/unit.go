package zerobench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// unit is a way to a logical unit. Each value carries out one command at a time.
type unit interface {
	do(cdb, out []byte, in int) (data []byte, err error)
	Close() error
}

// scsiError is a status other than GOOD.
type scsiError struct {
	status byte
	sense  []byte
}

func (e *scsiError) Error() string {
	return fmt.Sprintf("the LUN answered status %02x, sense % x", e.status, e.sense[:min(len(e.sense), 18)])
}

// openLUNs opens a target, iscsi://HOST:PORT/TARGET/LUN or a block device, for n commands
// at a time.
func openLUNs(target string, n int) (luns []unit, err error) {
	if iscsi.IsAddress(target) {
		for i := range n {
			l, err := openISCSI(target, i)
			if err != nil {
				return luns, err
			}
			luns = append(luns, l)
		}
		return luns, nil
	}
	f, err := os.OpenFile(target, os.O_RDWR|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("--target %s is in use, such as by a file system; unmount it", target)
	case err != nil:
		return nil, fmt.Errorf("--target: %w", err)
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeDevice == 0 {
		f.Close()
		return nil, fmt.Errorf("--target %s is not a device; give a SCSI disk such as /dev/sdX, or iscsi://HOST:PORT/TARGET/LUN", target)
	}
	// The disk is claimed once, for all of them.
	for range n {
		luns = append(luns, &sgLUN{f})
	}
	return luns, nil
}

// openISCSI opens session number n to a LUN.
func openISCSI(target string, n int) (unit, error) {
	a, err := iscsi.LoadAddress(target)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	conn, err := net.DialTimeout("tcp", a.Portal, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("--target: %w", err)
	}
	// Sessions of one initiator differ in the qualifier of their ISID.
	c, err := iscsi.NewClient(conn, iscsi.ClientConfig{Initiator: "iqn.2026-01.io.arraysim:bench", Target: a.Target, CHAP: a.CHAP, ISID: [6]byte{0x80, 0, 0, 0, byte(n >> 8), byte(n)}})
	if err != nil {
		return nil, fmt.Errorf("--target %s: %w", iscsi.WithoutSecret(target), err)
	}
	return &iscsiLUN{c, a.LUN}, nil
}

type iscsiLUN struct {
	c  *iscsi.Client
	id uint64
}

func (l *iscsiLUN) Close() error { return l.c.Logout() }

func (l *iscsiLUN) do(cdb, out []byte, in int) ([]byte, error) {
	r, err := l.c.Command(l.id, cdb, out, in)
	if err != nil {
		return nil, err
	}
	if r.Status != 0 {
		return nil, &scsiError{r.Status, r.Sense}
	}
	return r.Data, nil
}

// sgLUN sends commands to a block device by SG_IO.
type sgLUN struct{ f *os.File }

func (l *sgLUN) Close() error { return l.f.Close() }

// sgIOHdr is struct sg_io_hdr of <scsi/sg.h>.
type sgIOHdr struct {
	interfaceID    int32
	direction      int32
	cmdLen         uint8
	maxSense       uint8
	iovecCount     uint16
	transferLen    uint32
	transfer       unsafe.Pointer
	cmd            unsafe.Pointer
	sense          unsafe.Pointer
	timeout        uint32 // milliseconds
	flags          uint32
	packID         int32
	_              [4]byte
	userPtr        unsafe.Pointer
	status         uint8
	maskedStatus   uint8
	msgStatus      uint8
	senseWritten   uint8
	hostStatus     uint16
	driverStatus   uint16
	resid          int32
	duration, info uint32
}

const (
	sgIO       = 0x2285
	sgNone     = -1
	sgToDev    = -2
	sgFromDev  = -3
	sgTimeout  = 60_000
	senseBytes = 64
)

func (l *sgLUN) do(cdb, out []byte, in int) ([]byte, error) {
	sense := make([]byte, senseBytes)
	data := out
	h := sgIOHdr{interfaceID: 'S', direction: sgNone, cmdLen: uint8(len(cdb)), maxSense: senseBytes, cmd: unsafe.Pointer(&cdb[0]), sense: unsafe.Pointer(&sense[0]), timeout: sgTimeout}
	switch {
	case len(out) > 0:
		h.direction = sgToDev
	case in > 0:
		h.direction, data = sgFromDev, make([]byte, in)
	}
	if len(data) > 0 {
		h.transferLen, h.transfer = uint32(len(data)), unsafe.Pointer(&data[0])
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, l.f.Fd(), sgIO, uintptr(unsafe.Pointer(&h))); errno != 0 {
		return nil, fmt.Errorf("SG_IO: %w", errno)
	}
	if h.status != 0 {
		return nil, &scsiError{h.status, sense[:h.senseWritten]}
	}
	if h.hostStatus != 0 || h.driverStatus != 0 {
		return nil, fmt.Errorf("SG_IO: host status %04x, driver status %04x", h.hostStatus, h.driverStatus)
	}
	return data[:len(data)-int(h.resid)], nil
}
