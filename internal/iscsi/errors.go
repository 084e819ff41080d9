package iscsi

import (
	"fmt"
	"sync/atomic"
)

// ErrorKind names what a peer did wrong; it labels the counter of protocol
// errors.
type ErrorKind uint8

// Kinds of protocol errors.
const (
	ErrPDU ErrorKind = iota // a malformed header, or lengths beyond what was declared
	ErrHeaderDigest
	ErrDataDigest
	ErrLogin       // a login that broke the rules or timed out
	ErrAuth        // authentication failed or was evaded
	ErrDataOut     // DataSN, offset, tag or length of Data-Out
	ErrUnsolicited // immediate or unsolicited data against what was negotiated
	ErrSequence    // a gap in CmdSN larger than the portal holds
	ErrOpcode      // an opcode that has no place in this phase
	ErrText        // malformed or oversized text
	ErrTimeout     // no answer to a NOP-In
	ErrLimit       // a limit of the portal
	numErrorKinds
)

var errorKindNames = [numErrorKinds]string{"pdu", "header_digest", "data_digest", "login", "auth", "data_out",
	"unsolicited", "sequence", "opcode", "text", "timeout", "limit"}

func (k ErrorKind) String() string {
	if k < numErrorKinds {
		return errorKindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ProtocolError is a peer's violation of RFC 7143 or of the portal's limits. Its
// scope is the connection: the portal sends a Reject where the RFC has one for
// it, and closes.
type ProtocolError struct {
	Kind   ErrorKind
	Detail string
	reason byte // of the Reject; 0 sends none
}

func (e *ProtocolError) Error() string { return "iscsi: " + e.Kind.String() + ": " + e.Detail }

// Reject reasons (RFC 7143 11.17.1).
const (
	rejectDataDigest     = 0x02
	rejectSNACK          = 0x03
	rejectProtocol       = 0x04
	rejectUnsupported    = 0x05
	rejectTooManyImmed   = 0x06
	rejectTaskInProgress = 0x07
	rejectInvalidField   = 0x09
)

func violation(kind ErrorKind, reason byte, format string, args ...any) *ProtocolError {
	return &ProtocolError{Kind: kind, Detail: fmt.Sprintf(format, args...), reason: reason}
}

type errorCounters [numErrorKinds]atomic.Uint64
