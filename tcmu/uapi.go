package tcmu

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"
)

// What <linux/target_core_user.h> says, with its line above ours. The layouts
// have no holes that the two languages could fill differently, and the tests
// hold every offset.

const (
	// #define TCMU_MAILBOX_VERSION 2
	mailboxVersion = 2

	// #define TCMU_MAILBOX_FLAG_CAP_OOOC (1 << 0) /* Out-of-order completions */
	capOutOfOrder = 1 << 0
	// #define TCMU_MAILBOX_FLAG_CAP_READ_LEN (1 << 1) /* Read data length */
	capReadLen = 1 << 1
	// #define TCMU_MAILBOX_FLAG_CAP_TMR (1 << 2) /* TMR notifications */
	capTMR = 1 << 2
	// #define TCMU_MAILBOX_FLAG_CAP_KEEP_BUF (1<<3) /* Keep buf after cmd completion */
	capKeepBuf = 1 << 3

	// TCMU_OP_PAD = 0,
	opPad = 0
	// TCMU_OP_CMD,
	opCmd = 1
	// TCMU_OP_TMR,
	opTMR = 2

	// #define TCMU_OP_MASK 0x7
	opMask = 0x7

	// #define TCMU_UFLAG_UNKNOWN_OP 0x1
	uflagUnknownOp = 0x1
	// #define TCMU_UFLAG_READ_LEN   0x2
	uflagReadLen = 0x2
	// #define TCMU_UFLAG_KEEP_BUF   0x4
	uflagKeepBuf = 0x4

	// #define TCMU_SENSE_BUFFERSIZE 96
	senseSize = 96

	// #define TCMU_OP_ALIGN_SIZE sizeof(__u64)
	entryAlign = 8
)

// struct tcmu_mailbox {
type mailbox struct {
	// __u16 version;
	version uint16
	// __u16 flags;
	flags uint16
	// __u32 cmdr_off;
	cmdrOff uint32
	// __u32 cmdr_size;
	cmdrSize uint32
	// __u32 cmd_head;
	cmdHead uint32
	_       [48]byte
	// __u32 cmd_tail __attribute__((__aligned__(ALIGN_SIZE)));
	cmdTail uint32
	_       [60]byte
}

// struct tcmu_cmd_entry_hdr {
type entryHeader struct {
	// __u32 len_op;
	lenOp uint32
	// __u16 cmd_id;
	cmdID uint16
	// __u8 kflags;
	kflags uint8
	// __u8 uflags;
	uflags uint8
}

// struct iovec {
type iovec struct {
	// void *iov_base; an offset from the start of the map here
	base uint64
	// size_t iov_len;
	len uint64
}

// cmdRequest is struct tcmu_cmd_entry with the member req of its union.
type cmdRequest struct {
	// struct tcmu_cmd_entry_hdr hdr;
	entryHeader
	// __u32 iov_cnt;
	iovCnt uint32
	// __u32 iov_bidi_cnt;
	iovBidiCnt uint32
	// __u32 iov_dif_cnt;
	iovDifCnt uint32
	_         uint32
	// __u64 cdb_off;
	cdbOff uint64
	// __u64 __pad1;
	_ uint64
	// __u64 __pad2; which we use, see fetchedMark
	mark uint64
	// struct iovec iov[0];
}

// cmdResponse is struct tcmu_cmd_entry with the member rsp of its union.
type cmdResponse struct {
	// struct tcmu_cmd_entry_hdr hdr;
	entryHeader
	// __u8 scsi_status;
	status uint8
	// __u8 __pad1;
	_ uint8
	// __u16 __pad2;
	_ uint16
	// __u32 read_len;
	readLen uint32
	// char sense_buffer[TCMU_SENSE_BUFFERSIZE];
	sense [senseSize]byte
}

// struct tcmu_tmr_entry {
type tmrEntry struct {
	// struct tcmu_cmd_entry_hdr hdr;
	entryHeader
	// __u8 tmr_type;
	kind uint8
	// __u8 __pad1;
	_ uint8
	// __u16 __pad2;
	_ uint16
	// __u32 cmd_cnt;
	cmdCnt uint32
	// __u64 __pad3;
	_ uint64
	// __u64 __pad4;
	_ uint64
	// __u16 cmd_ids[];
}

const (
	mailboxSize  = int(unsafe.Sizeof(mailbox{}))
	headerSize   = int(unsafe.Sizeof(entryHeader{}))
	requestSize  = int(unsafe.Sizeof(cmdRequest{}))
	responseSize = int(unsafe.Sizeof(cmdResponse{})) // no CMD entry is shorter
	tmrSize      = int(unsafe.Sizeof(tmrEntry{}))
	iovecSize    = int(unsafe.Sizeof(iovec{}))
)

// Generic netlink: enum tcmu_genl_cmd and enum tcmu_genl_attr.
const (
	familyName    = "TCM-USER"
	familyVersion = 2
	groupName     = "config"

	// TCMU_CMD_ADDED_DEVICE,
	cmdAdded = 1
	// TCMU_CMD_REMOVED_DEVICE,
	cmdRemoved = 2
	// TCMU_CMD_RECONFIG_DEVICE,
	cmdReconfig = 3
	// TCMU_CMD_ADDED_DEVICE_DONE, TCMU_CMD_REMOVED_DEVICE_DONE, TCMU_CMD_RECONFIG_DEVICE_DONE,
	cmdDone = 3 // to be added to the command that is answered
	// TCMU_CMD_SET_FEATURES,
	cmdSetFeatures = 7

	// TCMU_ATTR_DEVICE,
	attrDevice = 1
	// TCMU_ATTR_MINOR,
	attrMinor = 2
	// TCMU_ATTR_DEV_CFG,
	attrConfig = 4
	// TCMU_ATTR_DEV_SIZE,
	attrSize = 5
	// TCMU_ATTR_WRITECACHE,
	attrWriteCache = 6
	// TCMU_ATTR_CMD_STATUS,
	attrStatus = 7
	// TCMU_ATTR_DEVICE_ID,
	attrDeviceID = 8
	// TCMU_ATTR_SUPP_KERN_CMD_REPLY,
	attrReplySupported = 9
)

// errLayout says that a mapping is none of this ABI.
var errLayout = errors.New("tcmu: the mapping has no ring of a known version")

// checkMailbox validates the constant part of a mapping's mailbox.
func checkMailbox(mem []byte) (*mailbox, error) {
	if len(mem) < mailboxSize || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%entryAlign != 0 {
		return nil, errLayout
	}
	mb := (*mailbox)(unsafe.Pointer(unsafe.SliceData(mem)))
	off, size := uint64(mb.cmdrOff), uint64(mb.cmdrSize)
	switch {
	case mb.version != mailboxVersion,
		off < uint64(mailboxSize) || off%entryAlign != 0,
		size == 0 || size%entryAlign != 0,
		off+size > uint64(len(mem)):
		return nil, errLayout
	}
	return mb, nil
}

// Producer and consumer: the kernel publishes entries by moving the head, and
// takes back those that the tail has passed. The atomics order both against the
// entries (Go's are sequentially consistent).
func (m *mailbox) head() uint32 { return atomic.LoadUint32(&m.cmdHead) }
func (m *mailbox) tail() uint32 { return atomic.LoadUint32(&m.cmdTail) }

// moveTail moves the tail from where it was left, and reports whether it was there.
func (m *mailbox) moveTail(from, to uint32) bool {
	return atomic.CompareAndSwapUint32(&m.cmdTail, from, to)
}

// iovAt and idAt read the variable parts of entries.
func iovAt(entry []byte, i int) iovec {
	b := entry[requestSize+i*iovecSize:]
	return iovec{binary.NativeEndian.Uint64(b), binary.NativeEndian.Uint64(b[8:])}
}

func idAt(entry []byte, i int) uint16 { return binary.NativeEndian.Uint16(entry[tmrSize+2*i:]) }
