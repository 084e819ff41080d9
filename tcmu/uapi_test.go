package tcmu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"unsafe"
)

// The offsets below are those that a C compiler gives for <linux/target_core_user.h>
// on x86-64 and arm64.

func TestSizes(t *testing.T) {
	for _, row := range []struct {
		name      string
		got, want int
	}{
		{"struct tcmu_mailbox", mailboxSize, 128},
		{"struct tcmu_cmd_entry_hdr", headerSize, 8},
		{"struct tcmu_cmd_entry", responseSize, 112},
		{"offsetof(struct tcmu_cmd_entry, req.iov)", requestSize, 48},
		{"offsetof(struct tcmu_tmr_entry, cmd_ids)", tmrSize, 32},
		{"struct iovec", iovecSize, 16},
	} {
		if row.got != row.want {
			t.Errorf("%s: %d bytes, want %d", row.name, row.got, row.want)
		}
	}
}

// TestSentinels puts a value at the C offset of every field and finds it in ours.
func TestSentinels(t *testing.T) {
	words := make([]uint64, 16)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 128)
	mb := (*mailbox)(unsafe.Pointer(&words[0]))
	hdr := (*entryHeader)(unsafe.Pointer(&words[0]))
	req := (*cmdRequest)(unsafe.Pointer(&words[0]))
	rsp := (*cmdResponse)(unsafe.Pointer(&words[0]))
	tmr := (*tmrEntry)(unsafe.Pointer(&words[0]))
	for _, row := range []struct {
		name      string
		off, size int
		get       func() uint64
	}{
		{"tcmu_mailbox.version", 0, 2, func() uint64 { return uint64(mb.version) }},
		{"tcmu_mailbox.flags", 2, 2, func() uint64 { return uint64(mb.flags) }},
		{"tcmu_mailbox.cmdr_off", 4, 4, func() uint64 { return uint64(mb.cmdrOff) }},
		{"tcmu_mailbox.cmdr_size", 8, 4, func() uint64 { return uint64(mb.cmdrSize) }},
		{"tcmu_mailbox.cmd_head", 12, 4, func() uint64 { return uint64(mb.head()) }},
		{"tcmu_mailbox.cmd_tail", 64, 4, func() uint64 { return uint64(mb.tail()) }},
		{"tcmu_cmd_entry_hdr.len_op", 0, 4, func() uint64 { return uint64(hdr.lenOp) }},
		{"tcmu_cmd_entry_hdr.cmd_id", 4, 2, func() uint64 { return uint64(hdr.cmdID) }},
		{"tcmu_cmd_entry_hdr.kflags", 6, 1, func() uint64 { return uint64(hdr.kflags) }},
		{"tcmu_cmd_entry_hdr.uflags", 7, 1, func() uint64 { return uint64(hdr.uflags) }},
		{"tcmu_cmd_entry.req.iov_cnt", 8, 4, func() uint64 { return uint64(req.iovCnt) }},
		{"tcmu_cmd_entry.req.iov_bidi_cnt", 12, 4, func() uint64 { return uint64(req.iovBidiCnt) }},
		{"tcmu_cmd_entry.req.iov_dif_cnt", 16, 4, func() uint64 { return uint64(req.iovDifCnt) }},
		{"tcmu_cmd_entry.req.cdb_off", 24, 8, func() uint64 { return req.cdbOff }},
		{"tcmu_cmd_entry.req.__pad2", 40, 8, func() uint64 { return req.mark }},
		{"tcmu_cmd_entry.req.iov[0].iov_base", 48, 8, func() uint64 { return iovAt(mem, 0).base }},
		{"tcmu_cmd_entry.req.iov[0].iov_len", 56, 8, func() uint64 { return iovAt(mem, 0).len }},
		{"tcmu_cmd_entry.req.iov[2].iov_base", 80, 8, func() uint64 { return iovAt(mem, 2).base }},
		{"tcmu_cmd_entry.rsp.scsi_status", 8, 1, func() uint64 { return uint64(rsp.status) }},
		{"tcmu_cmd_entry.rsp.read_len", 12, 4, func() uint64 { return uint64(rsp.readLen) }},
		{"tcmu_cmd_entry.rsp.sense_buffer[0]", 16, 1, func() uint64 { return uint64(rsp.sense[0]) }},
		{"tcmu_cmd_entry.rsp.sense_buffer[95]", 111, 1, func() uint64 { return uint64(rsp.sense[95]) }},
		{"tcmu_tmr_entry.tmr_type", 8, 1, func() uint64 { return uint64(tmr.kind) }},
		{"tcmu_tmr_entry.cmd_cnt", 12, 4, func() uint64 { return uint64(tmr.cmdCnt) }},
		{"tcmu_tmr_entry.cmd_ids[0]", 32, 2, func() uint64 { return uint64(idAt(mem, 0)) }},
		{"tcmu_tmr_entry.cmd_ids[3]", 38, 2, func() uint64 { return uint64(idAt(mem, 3)) }},
	} {
		clear(mem)
		var v [8]byte
		copy(v[:row.size], "\xA1\xB2\xC3\xD4\xE5\xF6\x97\x88")
		copy(mem[row.off:], v[:row.size])
		if got, want := row.get(), binary.NativeEndian.Uint64(v[:]); got != want {
			t.Errorf("%s at %d: got %#x, want %#x", row.name, row.off, got, want)
		}
	}
	clear(mem)
	if !mb.moveTail(0, 0x11223344) || binary.NativeEndian.Uint32(mem[64:]) != 0x11223344 || bytes.Count(mem, []byte{0}) != 124 {
		t.Errorf("moveTail wrote elsewhere: % x", mem)
	}
	if mb.moveTail(0, 1) || mb.tail() != 0x11223344 {
		t.Errorf("the tail was moved from elsewhere to %#x", mb.tail())
	}
}

func TestCheckMailbox(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*mailbox)
		cut    int
		ok     bool
	}{
		{"as the kernel makes it", func(*mailbox) {}, 0, true},
		{"a kernel with more capabilities", func(m *mailbox) { m.flags = 0xFFFF }, 0, true},
		{"version 1, with two mailboxes", func(m *mailbox) { m.version = 1 }, 0, false},
		{"a later version", func(m *mailbox) { m.version = 3 }, 0, false},
		{"ring inside of the mailbox", func(m *mailbox) { m.cmdrOff = 64 }, 0, false},
		{"ring misaligned", func(m *mailbox) { m.cmdrOff = 132 }, 0, false},
		{"empty ring", func(m *mailbox) { m.cmdrSize = 0 }, 0, false},
		{"ring of odd length", func(m *mailbox) { m.cmdrSize = 1001 }, 0, false},
		{"ring longer than the mapping", func(m *mailbox) { m.cmdrSize = 4096 }, 0, false},
		{"sum that overflows 32 bits", func(m *mailbox) { m.cmdrOff, m.cmdrSize = 1<<32-8, 1024 }, 0, false},
		{"mapping shorter than the mailbox", func(*mailbox) {}, 4096 - 100, false},
		{"mapping misaligned", nil, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			words := make([]uint64, 512)
			mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4096)
			mb := (*mailbox)(unsafe.Pointer(&words[0]))
			mb.version, mb.flags, mb.cmdrOff, mb.cmdrSize = 2, 15, 128, 2048
			if row.change == nil {
				mem = mem[4:]
			} else {
				row.change(mb)
			}
			_, err := checkMailbox(mem[:len(mem)-row.cut])
			if (err == nil) != row.ok || err != nil && !errors.Is(err, errLayout) {
				t.Errorf("got %v, want ok=%t", err, row.ok)
			}
		})
	}
}

func TestCDBLength(t *testing.T) {
	for _, row := range []struct {
		name           string
		op, additional byte
		want           int
	}{
		{"TEST UNIT READY", 0x00, 0, 6},
		{"READ(10)", 0x28, 0, 10},
		{"MODE SENSE(10)", 0x5A, 0, 10},
		{"reserved group 3", 0x60, 0, 12},
		{"READ(16)", 0x88, 0, 16},
		{"REPORT LUNS", 0xA0, 0, 12},
		{"vendor specific, group 6", 0xC0, 0, 10},
		{"vendor specific, group 7", 0xFF, 0, 10},
		{"WRITE SAME(32)", 0x7F, 0x18, 32},
		{"the longest", 0x7F, 252, maxCDB},
		{"longer than CDBs can be", 0x7F, 255, 263},
	} {
		if got := cdbLen(row.op, row.additional); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

func TestSlots(t *testing.T) {
	var q slots
	next, want := uint32(0), uint32(0)
	for round := range 500 {
		for range round % 7 * 20 {
			q.push(slot{off: next})
			next++
		}
		for range round % 5 * 25 {
			if q.n == 0 {
				break
			}
			if s := q.front(); s.off != want || q.pop() != s {
				t.Fatalf("round %d: got slot %d, want %d", round, s.off, want)
			}
			want++
		}
		if q.n != int(next-want) {
			t.Fatalf("round %d: %d slots, want %d", round, q.n, next-want)
		}
	}
}

func mailboxOf(mem []byte) *mailbox { return (*mailbox)(unsafe.Pointer(unsafe.SliceData(mem))) }
