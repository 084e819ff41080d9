package iscsi

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
)

func (c *Client) keys() []byte {
	keys := map[string]string{
		keyHeaderDigest: valNone, keyDataDigest: valNone, keyMaxConnections: "1", keyInitialR2T: valNo, keyImmediateData: valYes,
		keyMaxRecvSegment: "262144", keyMaxBurst: "1048576", keyFirstBurst: "262144", keyTime2Wait: "0", keyTime2Retain: "0",
		keyMaxR2T: "4", keyPDUInOrder: valYes, keySeqInOrder: valYes, keyRecoveryLevel: "0",
	}
	maps.Copy(keys, c.cfg.Keys)
	c.offered = keys
	var out []byte
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if keys[k] != "" {
			out = appendKey(out, k, keys[k])
		}
	}
	if v, ok := parseNumber(keys[keyMaxRecvSegment]); ok {
		c.p.maxXmit = v
	}
	return out
}

func (c *Client) login() error {
	id := appendKey(nil, keyInitiatorName, c.cfg.Initiator)
	if c.cfg.Target == "" {
		id = appendKey(id, keySessionType, "Discovery")
	} else {
		id = appendKey(appendKey(id, keySessionType, "Normal"), keyTargetName, c.cfg.Target)
	}
	if !c.cfg.SkipSecurity {
		if err := c.authenticate(id); err != nil {
			return err
		}
		id = nil
	}
	if _, err := c.negotiate(stageOperational, stageFull, append(id, c.keys()...)); err != nil {
		return err
	}
	return c.apply()
}

func (c *Client) authenticate(id []byte) error {
	chap := c.cfg.CHAP
	if chap == nil {
		_, err := c.negotiate(stageSecurity, stageOperational, appendKey(id, keyAuthMethod, valNone))
		return err
	}
	got, err := c.negotiate(stageSecurity, stageSecurity, appendKey(id, keyAuthMethod, "CHAP,None"))
	if err != nil {
		return err
	}
	if got[keyAuthMethod] == valNone { // discovery often asks for nothing
		if chap.MutualSecret != nil {
			return errors.New("iscsi: the target did not authenticate itself")
		}
		_, err := c.negotiate(stageSecurity, stageOperational, nil)
		return err
	}
	got, err = c.negotiate(stageSecurity, stageSecurity, appendKey(nil, keyChapA, chapSHA3_256+","+chapSHA256+","+chapMD5))
	if err != nil {
		return err
	}
	id8, ok := parseNumber(got[keyChapI])
	challenge, ok2 := parseBinary(got[keyChapC], maxChapBinary)
	algorithm, ok3 := choose(got[keyChapA], chapSHA3_256, chapSHA256, chapMD5)
	if !ok || !ok2 || !ok3 {
		return errors.New("iscsi: the target sent no challenge")
	}
	out := appendKey(nil, keyChapN, chap.User)
	out = appendKey(out, keyChapR, formatBinary(chapResponse(algorithm, byte(id8), chap.Secret, challenge)))
	mine := make([]byte, chapChallengeSz)
	if chap.MutualSecret != nil {
		rand.Read(mine) // never fails (crypto/rand)
		out = appendKey(appendKey(out, keyChapI, "7"), keyChapC, formatBinary(mine))
	}
	if got, err = c.negotiate(stageSecurity, stageOperational, out); err != nil {
		return err
	}
	if chap.MutualSecret != nil {
		proof, _ := parseBinary(got[keyChapR], maxChapBinary)
		want := chapResponse(algorithm, 7, chap.MutualSecret, mine)
		if got[keyChapN] != chap.MutualUser || subtle.ConstantTimeCompare(proof, want) != 1 {
			return errors.New("iscsi: the target did not authenticate itself")
		}
	}
	return nil
}

// loginRounds is how many requests one step of a login may take; a target that negotiates on and on does not mean it.
const loginRounds = 16

// negotiate carries one step of a login through: it collects an answer that takes several responses, answers what the target
// asks by itself, and ends when the target takes the wanted transition (RFC 7143 6.3), or at once where none is wanted. It
// returns all keys of the answers.
func (c *Client) negotiate(stage, next byte, text []byte) (map[string]string, error) {
	all := make(map[string]string)
	var part []byte
	for range loginRounds {
		r, data, err := c.loginPDU(stage, next, text)
		if err != nil {
			return nil, err
		}
		if part = append(part, data...); len(part) > maxTextLen {
			return nil, errors.New("iscsi: the target's login text is too long")
		}
		flags := r[offFlags]
		transit := flags&flagFinal != 0
		switch {
		case flags>>2&3 != stage:
			return nil, fmt.Errorf("iscsi: the target answers in stage %d of the login, not in %d", flags>>2&3, stage)
		case transit && (next == stage || flags&3 != next || flags&flagContinue != 0):
			return nil, fmt.Errorf("iscsi: the target takes the login to stage %d (flags %#x)", flags&3, flags)
		case flags&flagContinue != 0:
			text = nil
			continue
		}
		got, err := c.answers(part)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, got)
		if transit || next == stage {
			return all, nil
		}
		part, text = nil, c.refuse(got)
	}
	return nil, fmt.Errorf("iscsi: the target does not end stage %d of the login after %d requests", stage, loginRounds)
}

// refuse answers the keys that the target brings up by itself: those that we have a use for are all in our own requests.
func (c *Client) refuse(got map[string]string) (out []byte) {
	for _, key := range slices.Sorted(maps.Keys(got)) {
		switch key {
		case keyTargetName, keyTargetAlias, keyTargetAddress, keyPortalGroup, keyMaxRecvSegment: // declarations
		case keyAuthMethod, keyChapA, keyChapI, keyChapC, keyChapN, keyChapR: // answers
		case keyTaskReporting:
			out = appendKey(out, key, "RFC3720")
		default:
			if c.offered[key] == "" {
				out = appendKey(out, key, cmp.Or(obsolete(key), valNotUnderstood))
			}
		}
	}
	return out
}

// answers parses the text of a target, and keeps it in Params.
func (c *Client) answers(data []byte) (map[string]string, error) {
	pairs, err := parseText(data)
	if err != nil {
		return nil, err
	}
	got := make(map[string]string)
	for _, kv := range pairs {
		got[kv.key] = kv.value
	}
	maps.Copy(c.Params, got)
	return got, nil
}

// loginPDU sends one login request and receives the response to it.
func (c *Client) loginPDU(stage, next byte, text []byte) (r bhs, data []byte, err error) {
	var hdr [bhsLen]byte
	h := bhs(hdr[:])
	h[0], h[offFlags] = opLogin|immediateBit, stage<<2
	if next != stage {
		h[offFlags] |= flagFinal | next
	}
	copy(h[offISID:], c.cfg.ISID[:])
	h.put32(offCmdSN, c.CmdSN)
	h.put32(offExpStatSN, c.ExpStatSN)
	if err := c.Send(hdr, nil, text); err != nil {
		return nil, nil, err
	}
	pdu, err := c.Receive()
	if err != nil {
		return nil, nil, err
	}
	r = bhs(pdu.Header[:])
	if r.opcode() != opLoginResp {
		return nil, nil, fmt.Errorf("iscsi: opcode %#x in answer to a login", r[0])
	}
	if status := r.u16(offStatusClass); status != loginOK {
		return nil, nil, &LoginError{status}
	}
	c.tsih = r.u16(offTSIH)
	return r, pdu.Data, nil
}

// apply takes over what the login settled. Lengths that no target may have are errors: what we send is cut to them.
func (c *Client) apply() error {
	segment := uint32(c.maxSend)
	for key, to := range map[string]*uint32{keyMaxBurst: &c.p.maxBurst, keyFirstBurst: &c.p.firstBurst, keyMaxRecvSegment: &segment} {
		v, ok := c.Params[key]
		if !ok || v == valIrrelevant || v == valReject || v == valNotUnderstood || c.cfg.Target == "" && to != &segment {
			continue // a discovery session has no bursts, and some targets say 0
		}
		n, ok := parseLength(v)
		if !ok {
			return fmt.Errorf("iscsi: the target answers %s=%.20q, not %d to %d", key, v, leastSegment, mostSegment)
		}
		*to = n
	}
	c.maxSend = int(segment)
	if v, ok := c.Params[keyInitialR2T]; ok {
		c.p.initialR2T = v == valYes
	}
	if v, ok := c.Params[keyImmediateData]; ok {
		c.p.immediateData = v == valYes
	}
	c.p.headerDigest = c.Params[keyHeaderDigest] == digestCRC32C
	c.p.dataDigest = c.Params[keyDataDigest] == digestCRC32C
	return nil
}
