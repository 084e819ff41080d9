package iscsi

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

func (c *Client) keys() []byte {
	keys := map[string]string{
		keyHeaderDigest: valNone, keyDataDigest: valNone, keyMaxConnections: "1", keyInitialR2T: valNo, keyImmediateData: valYes,
		keyMaxRecvSegment: "262144", keyMaxBurst: "1048576", keyFirstBurst: "262144", keyTime2Wait: "0", keyTime2Retain: "0",
		keyMaxR2T: "4", keyPDUInOrder: valYes, keySeqInOrder: valYes, keyRecoveryLevel: "0",
	}
	maps.Copy(keys, c.cfg.Keys)
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
	_, err := c.LoginStep(stageOperational, stageFull, append(id, c.keys()...))
	if err != nil {
		return err
	}
	return c.apply()
}

func (c *Client) authenticate(id []byte) error {
	chap := c.cfg.CHAP
	if chap == nil {
		_, err := c.LoginStep(stageSecurity, stageOperational, appendKey(id, keyAuthMethod, valNone))
		return err
	}
	got, err := c.LoginStep(stageSecurity, stageSecurity, appendKey(id, keyAuthMethod, "CHAP,None"))
	if err != nil {
		return err
	}
	if got[keyAuthMethod] == valNone { // discovery often asks for nothing
		if chap.MutualSecret != nil {
			return errors.New("iscsi: the target did not authenticate itself")
		}
		_, err := c.LoginStep(stageSecurity, stageOperational, nil)
		return err
	}
	got, err = c.LoginStep(stageSecurity, stageSecurity, appendKey(nil, keyChapA, chapSHA3_256+","+chapSHA256+","+chapMD5))
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
	if got, err = c.LoginStep(stageSecurity, stageOperational, out); err != nil {
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

// LoginStep sends one login request and takes the answer; T is set when next is
// another stage.
func (c *Client) LoginStep(stage, next byte, text []byte) (map[string]string, error) {
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
		return nil, err
	}
	pdu, err := c.Receive()
	if err != nil {
		return nil, err
	}
	r := bhs(pdu.Header[:])
	if r.opcode() != opLoginResp {
		return nil, fmt.Errorf("iscsi: opcode %#x in answer to a login", r[0])
	}
	if status := r.u16(offStatusClass); status != loginOK {
		return nil, &LoginError{status}
	}
	c.tsih = r.u16(offTSIH)
	pairs, err := parseText(pdu.Data)
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

// apply takes over what the login settled.
func (c *Client) apply() error {
	for key, to := range map[string]*uint32{keyMaxBurst: &c.p.maxBurst, keyFirstBurst: &c.p.firstBurst} {
		if v, ok := parseNumber(c.Params[key]); ok {
			*to = v
		}
	}
	if v, ok := c.Params[keyInitialR2T]; ok {
		c.p.initialR2T = v == valYes
	}
	if v, ok := c.Params[keyImmediateData]; ok {
		c.p.immediateData = v == valYes
	}
	if v, err := strconv.Atoi(c.Params[keyMaxRecvSegment]); err == nil {
		c.maxSend = v
	}
	c.p.headerDigest = c.Params[keyHeaderDigest] == digestCRC32C
	c.p.dataDigest = c.Params[keyDataDigest] == digestCRC32C
	return nil
}
