// ROD tokens: a point-in-time reference to data, named by 512 bytes that nobody can guess. A
// token holds its reference until it is deleted, revoked or expires, and longer while an
// operation reads it (users). What is gone is remembered for a while, for its sense code.

package copysource

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
	maxTokensOfHost = 64  // of them, made by one initiator, and no more than it leaves to others (block.Left)
	maxGoneTokens   = 256 // remembered for their sense code
	nsPerSecond     = 1_000_000_000
)

// ROD token (SPC-5 table 124), and what block devices put in it (SBC-4 table 243).
const (
	TokenLen         = 512
	tokenRODType     = 0
	TokenLengthAt    = 6
	tokenIdentifier  = 8
	tokenCreator     = 16
	tokenBytes       = 56 // low half of NUMBER OF BYTES REPRESENTED
	tokenBlockLength = 96
	tokenExponent    = 101
	tokenProvisioned = 102
	tokenSecret      = 128 // extended ROD token data: random
	tokenSecretLen   = 64
	tokenManagement  = 96 // of a ROD management token

	TokenLength = 0x01F8 // ROD TOKEN LENGTH

	// Of the CSCD descriptor of who made it.
	cscdCodeSet  = 4
	cscdBlockLen = 28 // its low three bytes
)

// Token is a ROD token that the target made: a point-in-time reference with a
// lifetime. It does not outlive the target.
type Token struct {
	// Constant.
	Bytes   [TokenLen]byte
	Unit    *server.Unit
	Ref     block.Ref // while it holds it
	Sectors uint64
	Shift   uint8 // of the unit's blocks

	s       *Store
	by      uint32 // the number of the initiator that made it
	timeout int64  // ns without use until it expires
	timer   block.Timer
	users   int        // operations that read it
	gone    sense.Code // why it cannot be used any more
	sum     TokenSum   // once another array has asked for one (lent.go)
}

// NewToken makes a token of what ref holds, and takes ref over. There must be room.
func (m *Store) NewToken(x *server.ITL, ref block.Ref, timeout int64) *Token {
	u := x.Unit()
	be := binary.BigEndian
	k := &Token{s: m, Unit: u, by: x.Nexus().HostID(), Ref: ref, Sectors: ref.Sectors(), Shift: u.Shift(), timeout: timeout}
	b := k.Bytes[:]
	be.PutUint32(b[tokenRODType:], copylist.RODPointInTime)
	be.PutUint16(b[TokenLengthAt:], TokenLength)
	u.Target().Options().Random(b[tokenIdentifier:tokenCreator])
	creator := b[tokenCreator : tokenCreator+copylist.CSCDLen]
	creator[0] = copylist.CSCDIdent
	copy(creator[cscdCodeSet:], u.Names()[0].AppendTo(nil, true))
	be.PutUint32(creator[cscdBlockLen:], uint32(u.BlockSize())) // fewer than 2^24
	be.PutUint64(b[tokenBytes:], k.Sectors<<block.SectorShift)
	be.PutUint32(b[tokenBlockLength:], uint32(u.BlockSize()))
	b[tokenExponent] = u.Info().PhysicalExp & 0x0F
	if u.Info().Thin {
		b[tokenProvisioned] = pages.ThinProvisioned
	}
	u.Target().Options().Random(b[tokenSecret : tokenSecret+tokenSecretLen])
	m.tokens = append(m.tokens, k)
	*m.valid(k.by)++
	k.touch()
	return k
}

// touch starts the inactivity timeout anew.
func (k *Token) touch() {
	k.rest()
	clock := k.Unit.Target().Exec()
	k.timer = clock.At(clock.Now()+k.timeout, func() { k.End(sense.TokenExpired) })
}

// rest stops the inactivity timeout.
func (k *Token) rest() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// Use says that an operation reads the token; Done that it has ended.
func (k *Token) Use() {
	k.users++
	k.rest()
}

func (k *Token) Done() {
	if k.users--; k.users > 0 {
		return
	}
	if k.gone != sense.NoSense {
		k.release()
		return
	}
	k.touch()
}

// Changed reports whether the token does not stand any more for what it was made of, because its device could not keep that.
func (k *Token) Changed() bool {
	v, ok := k.Ref.(block.Vulnerable)
	return ok && v.Changed()
}

// End makes the token invalid. Operations that read it go on.
func (k *Token) End(why sense.Code) {
	if k.gone != sense.NoSense {
		return
	}
	k.gone = why
	*k.s.valid(k.by)--
	k.rest()
	if k.users == 0 {
		k.release()
	}
	m := k.s
	gone := 0
	for _, q := range m.tokens {
		if q.gone != sense.NoSense {
			gone++
		}
	}
	if gone > maxGoneTokens {
		i := slices.IndexFunc(m.tokens, func(q *Token) bool { return q.gone != sense.NoSense && q.users == 0 })
		if i >= 0 {
			m.tokens = slices.Delete(m.tokens, i, i+1)
		}
	}
}

func (k *Token) release() {
	k.Ref.Release()
	k.Ref = nil
}

// RoomForToken reports whether the initiator, of this number, can make another token.
func (m *Store) RoomForToken(by uint32) bool {
	own, valid := *m.valid(by), 0
	for _, k := range m.tokens {
		if k.gone == sense.NoSense {
			valid++
		}
	}
	return own < maxTokensOfHost && block.Left(own, valid, maxTokens) > 0
}

// Revoke makes the tokens of a unit invalid, or those of all with nil.
func (m *Store) Revoke(u *server.Unit) {
	for _, k := range slices.Clone(m.tokens) {
		if u == nil || k.Unit == u {
			k.End(sense.TokenRevoked)
		}
	}
}

// Token finds a token by its bytes. One of a unit that the nexus cannot see is
// unknown to it: whoever gets hold of a token gets no data by it that LUN masking
// keeps from him.
func (m *Store) Token(n *server.Nexus, b []byte) (*Token, sense.Code) {
	var found *Token
	for _, k := range m.tokens {
		// In constant time, so that none can be guessed byte by byte.
		if subtle.ConstantTimeCompare(k.Bytes[:], b) == 1 {
			found = k
		}
	}
	switch {
	case found == nil || !found.Unit.Removed() && !n.Sees(found.Unit):
		return nil, sense.TokenUnknown
	case found.gone != sense.NoSense:
		return nil, found.gone
	}
	return found, sense.NoSense
}

// Report appends the management tokens of the units that the nexus can see. They lack what a token needs to be used.
func (m *Store) Report(n *server.Nexus, b []byte) []byte {
	for _, k := range m.tokens {
		if k.gone == sense.NoSense && n.Sees(k.Unit) {
			b = append(b, k.Bytes[:tokenManagement]...)
		}
	}
	return b
}

// Tokens lists the tokens that are valid, in the order of creation.
func (m *Store) Tokens() (out []*Token) {
	for _, k := range m.tokens {
		if k.gone == sense.NoSense {
			out = append(out, k)
		}
	}
	return out
}
