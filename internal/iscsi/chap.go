package iscsi

import (
	"crypto/md5"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// CHAP keys (RFC 7143 12.1.3).
const (
	keyChapA = "CHAP_A"
	keyChapI = "CHAP_I"
	keyChapC = "CHAP_C"
	keyChapN = "CHAP_N"
	keyChapR = "CHAP_R"

	// Algorithms, by their numbers in IANA's registry of PPP authentication
	// algorithms. Every initiator has MD5; who has better asks for it first.
	chapMD5      = "5"
	chapSHA256   = "7"
	chapSHA3_256 = "8"

	maxChapBinary   = 1024
	chapChallengeSz = 16
)

// CHAP is what an initiator must know to log in, and what the target proves to
// it in turn when MutualSecret is set. Secrets are never logged.
type CHAP struct {
	User         string
	Secret       []byte
	MutualUser   string
	MutualSecret []byte
	// Initiators have, by name, what each of them must know in place of the above, which then does not let anybody in
	// under their names. With it, User and Secret may be left out: only who is named gets in. For targets only.
	Initiators map[string]*CHAP
}

// Check reports what makes c unusable; nil, which asks for no CHAP, is usable.
func (c *CHAP) Check() error {
	_, err := c.prepared()
	return err
}

// prepared checks c and returns a copy whose names are folded. Secrets must differ: two that share one could take each
// other's names, and a target that proves itself with the initiator's secret proves nothing (RFC 7143 9.2.1).
func (c *CHAP) prepared() (*CHAP, error) {
	if c == nil {
		return nil, nil
	}
	p := *c
	p.Initiators = make(map[string]*CHAP, len(c.Initiators))
	secrets := map[string]string{} // what it is by secret; no secret is told
	check := func(whose string, x *CHAP) error {
		if x.User == "" || len(x.Secret) == 0 {
			return fmt.Errorf("%s needs a user and a secret", whose)
		}
		if o := secrets[string(x.Secret)]; o != "" {
			return fmt.Errorf("%s and %s have the same secret; give each its own", o, whose)
		}
		secrets[string(x.Secret)] = whose
		return nil
	}
	if c.User != "" || len(c.Secret) > 0 || len(c.Initiators) == 0 {
		if err := check("CHAP", c); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Initiators)) {
		x := c.Initiators[name]
		switch {
		case !validName(name):
			return nil, fmt.Errorf("CHAP of %q: this is not an iSCSI name", name)
		case p.Initiators[FoldName(name)] != nil:
			return nil, fmt.Errorf("CHAP of %s is given twice", name)
		}
		if err := check("CHAP of "+name, x); err != nil {
			return nil, err
		}
		p.Initiators[FoldName(name)] = x
	}
	for _, x := range append(slices.Collect(maps.Values(p.Initiators)), &p) { // any one is reported
		if o := secrets[string(x.MutualSecret)]; len(x.MutualSecret) > 0 && o != "" {
			return nil, fmt.Errorf("the target authenticates itself with the secret of %s; give it a different one", o)
		}
	}
	return &p, nil
}

// of returns what the named initiator must know; nil asks for nothing. Who is not named where all must be is asked for a
// secret that nobody knows, so that no name can be told from another before its secret is right.
func (c *CHAP) of(initiator string) *CHAP {
	if c == nil {
		return nil
	}
	if x := c.Initiators[FoldName(initiator)]; x != nil {
		return x
	}
	if len(c.Secret) > 0 {
		return c
	}
	unknown := make([]byte, 32)
	rand.Read(unknown) // never fails (crypto/rand)
	return &CHAP{User: string(unknown), Secret: unknown}
}

// chapResponse is the digest of identifier, secret and challenge (RFC 1994 4.1).
func chapResponse(algorithm string, id byte, secret, challenge []byte) []byte {
	var h hash.Hash
	switch algorithm {
	case chapSHA256:
		h = sha256.New()
	case chapSHA3_256:
		h = sha3.New256()
	default:
		h = md5.New()
	}
	h.Write([]byte{id})
	h.Write(secret)
	h.Write(challenge)
	return h.Sum(nil)
}

// parseBinary decodes a binary value, 0x and hexadecimal or 0b and base64, of at
// most limit bytes.
func parseBinary(s string, limit int) ([]byte, bool) {
	if len(s) < 2 || len(s) > 2+2*limit+2 {
		return nil, false
	}
	var b []byte
	var err error
	switch body := s[2:]; s[:2] {
	case "0x", "0X":
		if len(body)%2 == 1 {
			body = "0" + body
		}
		b, err = hex.DecodeString(body)
	case "0b", "0B":
		b, err = base64.StdEncoding.DecodeString(body)
	default:
		return nil, false
	}
	return b, err == nil && len(b) > 0 && len(b) <= limit
}

func formatBinary(b []byte) string { return "0x" + hex.EncodeToString(b) }

// chapServer is the target's side of one authentication.
type chapServer struct {
	conf      *CHAP
	id        byte
	algorithm string
	challenge []byte
	asked     bool // the challenge is out
	done      bool
}

// step takes the CHAP keys of one message and appends the answer. An error means
// that the initiator has not proved anything; it says nothing about why.
func (s *chapServer) step(keys map[string]string, out []byte) ([]byte, error) {
	denied := violation(ErrAuth, 0, "CHAP failed")
	if a, ok := keys[keyChapA]; ok {
		algorithm, ok := choose(a, chapSHA3_256, chapSHA256, chapMD5)
		if !ok || s.asked || s.done {
			return out, denied
		}
		s.algorithm = algorithm
		s.challenge = make([]byte, chapChallengeSz+1)
		rand.Read(s.challenge) // never fails (crypto/rand)
		s.id, s.challenge = s.challenge[0], s.challenge[1:]
		s.asked = true
		out = appendKey(out, keyChapA, algorithm)
		out = appendKey(out, keyChapI, strconv.Itoa(int(s.id)))
		return appendKey(out, keyChapC, formatBinary(s.challenge)), nil
	}

	name, haveName := keys[keyChapN]
	resp, haveResp := keys[keyChapR]
	if !haveName && !haveResp {
		return out, nil
	}
	got, ok := parseBinary(resp, maxChapBinary)
	want := chapResponse(s.algorithm, s.id, s.conf.Secret, s.challenge)
	// Both comparisons always run, so that the time tells nothing.
	same := subtle.ConstantTimeCompare(got, want) & subtle.ConstantTimeCompare([]byte(name), []byte(s.conf.User))
	if !s.asked || s.done || !ok || same != 1 {
		return out, denied
	}
	s.done = true

	idText, mutual := keys[keyChapI]
	if !mutual {
		return out, nil
	}
	id, idOK := parseNumber(idText)
	challenge, chOK := parseBinary(keys[keyChapC], maxChapBinary)
	// A challenge that reflects ours would make us sign for an impostor.
	if !idOK || id > 255 || !chOK || len(s.conf.MutualSecret) == 0 || strings.EqualFold(formatBinary(challenge), formatBinary(s.challenge)) {
		return out, denied
	}
	out = appendKey(out, keyChapN, s.conf.MutualUser)
	return appendKey(out, keyChapR, formatBinary(chapResponse(s.algorithm, byte(id), s.conf.MutualSecret, challenge))), nil
}
