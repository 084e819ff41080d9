// ROD tokens: a point-in-time reference to data, named by 512 bytes that nobody can guess. A
// token holds its reference until it is deleted, revoked or expires, and longer while an
// operation reads it (users). What is gone is remembered for a while, for its sense code.

package copymgr

import (
	"crypto/subtle"
	"encoding/binary"
	"slices"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi/copylist"
	"github.com/arraysim/arraysim/internal/scsi/pages"
	"github.com/arraysim/arraysim/internal/scsi/sense"
	"github.com/arraysim/arraysim/internal/scsi/server"
)

// Limits of ROD tokens, as the Third-party Copy VPD page reports them.
const (
	maxTokens       = 256 // valid at the same time
	maxTokensOfHost = 64  // of them, made by one initiator
	maxGoneTokens   = 256 // remembered for their sense code
	nsPerSecond     = 1_000_000_000
)

// ROD token (SPC-5 table 124), and what block devices put in it (SBC-4 table 243).
const (
	tokenLen         = 512
	tokenRODType     = 0
	tokenLengthAt    = 6
	tokenIdentifier  = 8
	tokenCreator     = 16
	tokenBytes       = 56 // low half of NUMBER OF BYTES REPRESENTED
	tokenBlockLength = 96
	tokenExponent    = 101
	tokenProvisioned = 102
	tokenSecret      = 128 // extended ROD token data: random
	tokenSecretLen   = 64
	tokenManagement  = 96 // of a ROD management token

	rodTokenLength = 0x01F8 // ROD TOKEN LENGTH
)

// ROD types.
const (
	rodAnyPIT = 0x0080FFFF // in a command: any point in time copy
)

// rodToken is a ROD token that the target made: a point-in-time reference with a
// lifetime. It does not outlive the target.
type rodToken struct {
	bytes   [tokenLen]byte
	m       *Manager
	u       *server.Unit
	by      uint32 // the number of the initiator that made it
	ref     block.Ref
	sectors uint64
	shift   uint8 // of the unit's blocks
	timeout int64 // ns without use until it expires
	timer   block.Timer
	users   int        // operations that read it
	gone    sense.Code // why it cannot be used any more
}

// newToken makes a token of what ref holds, and takes ref over. There must be room.
func (m *Manager) newToken(x *server.ITL, ref block.Ref, timeout int64) *rodToken {
	u := x.Unit()
	be := binary.BigEndian
	k := &rodToken{m: m, u: u, by: x.Nexus().HostID(), ref: ref, sectors: ref.Sectors(), shift: u.Shift(), timeout: timeout}
	b := k.bytes[:]
	be.PutUint32(b[tokenRODType:], copylist.RODPointInTime)
	be.PutUint16(b[tokenLengthAt:], rodTokenLength)
	u.Target().Options().Random(b[tokenIdentifier:tokenCreator])
	creator := b[tokenCreator : tokenCreator+copylist.CSCDLen]
	creator[0] = copylist.CSCDIdent
	copy(creator[cscdCodeSet:], u.Names()[0].AppendTo(nil, true))
	be.PutUint32(creator[cscdBlockLen:], uint32(u.BlockSize())) // fewer than 2^24
	be.PutUint64(b[tokenBytes:], k.sectors<<block.SectorShift)
	be.PutUint32(b[tokenBlockLength:], uint32(u.BlockSize()))
	b[tokenExponent] = u.Info().PhysicalExp & 0x0F
	if u.Info().Thin {
		b[tokenProvisioned] = pages.ThinProvisioned
	}
	u.Target().Options().Random(b[tokenSecret : tokenSecret+tokenSecretLen])
	m.tokens = append(m.tokens, k)
	m.host(k.by).tokens++
	k.touch()
	return k
}

// touch starts the inactivity timeout anew.
func (k *rodToken) touch() {
	k.rest()
	clock := k.u.Target().Exec()
	k.timer = clock.At(clock.Now()+k.timeout, func() { k.end(sense.TokenExpired) })
}

// rest stops the inactivity timeout.
func (k *rodToken) rest() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// use says that an operation reads the token; done that it has ended.
func (k *rodToken) use() {
	k.users++
	k.rest()
}

func (k *rodToken) done() {
	if k.users--; k.users > 0 {
		return
	}
	if k.gone != sense.NoSense {
		k.Release()
		return
	}
	k.touch()
}

// changed reports whether the token does not stand any more for what it was made of, because its device could not keep that.
func (k *rodToken) changed() bool {
	v, ok := k.ref.(block.Vulnerable)
	return ok && v.Changed()
}

// end makes the token invalid. Operations that read it go on.
func (k *rodToken) end(why sense.Code) {
	if k.gone != sense.NoSense {
		return
	}
	k.gone = why
	k.m.host(k.by).tokens--
	k.rest()
	if k.users == 0 {
		k.Release()
	}
	m := k.m
	gone := 0
	for _, q := range m.tokens {
		if q.gone != sense.NoSense {
			gone++
		}
	}
	if gone > maxGoneTokens {
		i := slices.IndexFunc(m.tokens, func(q *rodToken) bool { return q.gone != sense.NoSense && q.users == 0 })
		if i >= 0 {
			m.tokens = slices.Delete(m.tokens, i, i+1)
		}
	}
}

func (k *rodToken) Release() {
	k.ref.Release()
	k.ref = nil
}

// roomForToken reports whether the initiator can make another token.
func (m *Manager) roomForToken(by uint32) bool {
	if m.host(by).tokens >= maxTokensOfHost {
		return false
	}
	valid := 0
	for _, k := range m.tokens {
		if k.gone == sense.NoSense {
			valid++
		}
	}
	return valid < maxTokens
}

// Revoke implements server.CopyManager.
func (m *Manager) Revoke(u *server.Unit) {
	for _, k := range slices.Clone(m.tokens) {
		if u == nil || k.u == u {
			k.end(sense.TokenRevoked)
		}
	}
}

// token finds a token by its bytes. One of a unit that the nexus cannot see is
// unknown to it: whoever gets hold of a token gets no data by it that LUN masking
// keeps from him.
func (m *Manager) token(n *server.Nexus, b []byte) (*rodToken, sense.Code) {
	var found *rodToken
	for _, k := range m.tokens {
		// In constant time, so that none can be guessed byte by byte.
		if subtle.ConstantTimeCompare(k.bytes[:], b) == 1 {
			found = k
		}
	}
	switch {
	case found == nil || !found.u.Removed() && !n.Sees(found.u):
		return nil, sense.TokenUnknown
	case found.gone != sense.NoSense:
		return nil, found.gone
	}
	return found, sense.NoSense
}

// ReportTokens serves REPORT ALL ROD TOKENS: the management tokens of the units
// that the nexus can see. They lack what a token needs to be used.
func ReportTokens(t *server.Task) {
	n := t.Nexus()
	b := make([]byte, 8)
	for _, k := range managerOf(t).tokens {
		if k.gone == sense.NoSense && n.Sees(k.u) {
			b = append(b, k.bytes[:tokenManagement]...)
		}
	}
	t.ReplyAvailable(b)
}
