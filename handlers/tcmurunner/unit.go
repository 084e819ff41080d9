// Package tcmurunner is what a handler of tcmu-runner needs to serve devices of its own with LUNs of a running
// `arraysim serve`. Commands are forwarded over iSCSI, one session a device: no state of the array lives in
// tcmu-runner's process. The folder plugin makes a shared object of it (make plugin).
//
// # Concurrency
//
// A [Unit]'s methods may be called by many goroutines; [Unit.Do] waits for the command's end.
package tcmurunner

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/arraysim/arraysim/internal/lun"
)

const dialTimeout = 5 * time.Second

// SCSI status codes (SAM-5 5.3.1).
const (
	good     = 0x00
	check    = 0x02
	busy     = 0x08
	conflict = 0x18
	full     = 0x28
)

// Answers of tcmu-runner's handlers: TCMU_STS_ in its libtcmu_common.h.
const (
	StatusOK         = 0
	StatusNoResource = 1 // becomes TASK SET FULL
	StatusSense      = 2 // becomes CHECK CONDITION with the sense data that the handler made
	StatusBusy       = 3
)

// SenseLen is the size of a command's buffer for sense data, in bytes.
const SenseLen = 96

// Unit is a LUN of the array behind a device of the kernel's.
type Unit struct {
	t      lun.Transport
	config string
}

// Check tells what is wrong with a configuration string, without asking an array.
func Check(config string) error {
	s, err := parse(config)
	if err != nil {
		return err
	}
	all, err := settings()
	if err == nil && s.array != defaultArray {
		if _, ok := all[s.array]; !ok {
			err = fmt.Errorf("there is no array %q in %s", s.array, SettingsFile)
		}
	}
	return err
}

// Open logs in to the array. blocks and blockSize (bytes) are what the kernel's device has: they must be those of
// the LUN. owner tells devices of this host apart; the next session of an owner takes the place of one that was lost.
func Open(config, owner string, blocks uint64, blockSize uint32) (*Unit, error) {
	s, err := parse(config)
	if err != nil {
		return nil, err
	}
	addr, initiator, err := s.address()
	if err != nil {
		return nil, err
	}
	t, err := lun.Dial(addr, initiator, owner, lun.Times{})
	if err != nil {
		return nil, fmt.Errorf("array at %s: %w", addr.Portal, err)
	}
	u := &Unit{t: t, config: config}
	if err := u.verify(blocks, blockSize); err != nil {
		t.Close()
		return nil, fmt.Errorf("LUN %d of %s at %s: %w", s.lun, addr.Target, addr.Portal, err)
	}
	return u, nil
}

// verify takes the unit attention conditions of a new session and compares sizes.
func (u *Unit) verify(blocks uint64, blockSize uint32) error {
	var sense [SenseLen]byte
	for try := 0; ; try++ {
		status := u.Do(make([]byte, 6), nil, &sense) // TEST UNIT READY
		if status == StatusOK {
			break
		}
		key, asc, ascq := sense[2]&0x0F, sense[12], sense[13]
		if sense[0]&0x7F >= 0x72 { // descriptor format
			key, asc, ascq = sense[1]&0x0F, sense[2], sense[3]
		}
		if status != StatusSense || key != 0x06 || try == 8 {
			return fmt.Errorf("is not ready (answer %d, sense %X/%02X/%02X); is it exported to this initiator?", status, key, asc, ascq)
		}
	}
	var b [32]byte
	if status := u.Do([]byte{0x9E, 0x10, 13: 32, 15: 0}, [][]byte{b[:]}, &sense); status != StatusOK { // READ CAPACITY(16)
		return fmt.Errorf("READ CAPACITY(16) fails with %d", status)
	}
	n, size := binary.BigEndian.Uint64(b[:])+1, binary.BigEndian.Uint32(b[8:])
	if n != blocks || size != blockSize {
		return fmt.Errorf("has %d blocks of %d bytes, the backstore %d of %d: create it with size=%d and control=hw_block_size=%d",
			n, size, blocks, blockSize, n*uint64(size), size)
	}
	return nil
}

// Resize tells whether the LUN has that many bytes: a device becomes larger after its LUN.
func (u *Unit) Resize(bytes uint64, blockSize uint32) error {
	return u.verify(bytes/uint64(blockSize), blockSize)
}

// Close ends the session.
func (u *Unit) Close() { u.t.Close() }

// Do carries out a command and waits for its end. data is where the command's data is, or goes; what of it an
// answer leaves free is zeroed, because the kernel shows all of it to the initiator. The result is one of the
// answers above; StatusSense comes with sense data in fixed or descriptor format.
func (u *Unit) Do(cdb []byte, data [][]byte, sense *[SenseLen]byte) int {
	end := make(chan struct{})
	c := &lun.Command{CDB: cdb, Once: once(cdb), Done: func(*lun.Command) { close(end) }}
	out := takesData(cdb)
	if out {
		c.Out = data
	} else {
		c.In = data
	}
	u.t.Start(c)
	<-end
	switch {
	case c.Lost != nil:
		return senseCode(sense, 0x0B0800) // LOGICAL UNIT COMMUNICATION FAILURE
	case c.Status == good:
		if !out {
			zeroFrom(data, c.InLen)
		}
		return StatusOK
	case c.Status == check:
		clear(sense[:])
		copy(sense[:], c.Sense)
		return StatusSense
	case c.Status == full:
		return StatusNoResource
	case c.Status == conflict:
		// tcmu-runner has no way to say it.
		return senseCode(sense, 0x052C09) // PREVIOUS RESERVATION CONFLICT STATUS
	case c.Status == busy:
		return StatusBusy
	}
	return senseCode(sense, 0x0B0000)
}

// senseCode makes fixed format sense data of a key and an additional code.
func senseCode(sense *[SenseLen]byte, code uint32) int {
	clear(sense[:])
	sense[0], sense[2], sense[7] = 0x70, byte(code>>16), 10
	sense[12], sense[13] = byte(code>>8), byte(code)
	return StatusSense
}

func zeroFrom(data [][]byte, at int) {
	for _, b := range data {
		if at < len(b) {
			clear(b[max(at, 0):])
		}
		at -= len(b)
	}
}

// once reports whether a command would find what it did, if it was carried out a second time: COMPARE AND WRITE a
// miscompare, ORWRITE bits that others have cleared since, a copy its own result, where its ranges overlap, and PERSISTENT
// RESERVE OUT another key. A session that has lost one does not send it again.
func once(cdb []byte) bool {
	switch cdb[0] {
	case 0x5F, 0x83, 0x89, 0x8B:
		return true
	case 0x7F:
		return len(cdb) >= 10 && binary.BigEndian.Uint16(cdb[8:]) == 0x0E // ORWRITE(32)
	}
	return false
}

// takesData tells whether a command sends data to the unit: a ring entry does not say it. Operation codes of
// SPC-5 annex F and SBC-4.
func takesData(cdb []byte) bool {
	switch cdb[0] {
	case 0x04, 0x07, 0x0A, 0x15, 0x16, 0x1D, 0x2A, 0x2E, 0x39, 0x3B, 0x3F, 0x41, 0x42, 0x48, 0x4C, 0x50, 0x51, 0x55, 0x56, 0x5F,
		0x83, 0x89, 0x8A, 0x8B, 0x8E, 0x93, 0x9A, 0x9C, 0xA4, 0xAA, 0xAE:
		return true
	case 0x2F, 0x8F, 0xAF: // VERIFY: with BYTCHK
		return len(cdb) > 1 && cdb[1]&0x06 != 0
	case 0x7F:
		if len(cdb) < 10 {
			return false
		}
		switch binary.BigEndian.Uint16(cdb[8:]) { // WRITE, WRITE AND VERIFY, WRITE SAME, ORWRITE, and VERIFY with BYTCHK
		case 0x0B, 0x0C, 0x0D, 0x0E:
			return true
		case 0x0A:
			return len(cdb) > 10 && cdb[10]&0x06 != 0
		}
	}
	return false
}
