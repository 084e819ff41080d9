package iscsi

import "strconv"

// Operational keys (RFC 7143 13).
const (
	keyHeaderDigest   = "HeaderDigest"
	keyDataDigest     = "DataDigest"
	keyMaxConnections = "MaxConnections"
	keyInitialR2T     = "InitialR2T"
	keyImmediateData  = "ImmediateData"
	keyMaxRecvSegment = "MaxRecvDataSegmentLength"
	keyMaxBurst       = "MaxBurstLength"
	keyFirstBurst     = "FirstBurstLength"
	keyTime2Wait      = "DefaultTime2Wait"
	keyTime2Retain    = "DefaultTime2Retain"
	keyMaxR2T         = "MaxOutstandingR2T"
	keyPDUInOrder     = "DataPDUInOrder"
	keySeqInOrder     = "DataSequenceInOrder"
	keyRecoveryLevel  = "ErrorRecoveryLevel"
	keyTaskReporting  = "TaskReporting"
	keyProtocolLevel  = "iSCSIProtocolLevel"
	keyInitiatorName  = "InitiatorName"
	keyInitiatorAlias = "InitiatorAlias"
	keyTargetName     = "TargetName"
	keyTargetAlias    = "TargetAlias"
	keyTargetAddress  = "TargetAddress"
	keyPortalGroup    = "TargetPortalGroupTag"
	keySessionType    = "SessionType"
	keySendTargets    = "SendTargets"
	keyAuthMethod     = "AuthMethod"
)

const digestCRC32C = "CRC32C"

// Bounds of the keys that are lengths (RFC 7143 13.12 to 13.14).
const (
	leastSegment = 512
	mostSegment  = 1<<24 - 1
)

// params is what a login settled. The zero value is not usable; see
// defaultParams.
type params struct {
	headerDigest, dataDigest  bool
	initialR2T, immediateData bool
	maxXmit                   uint32 // the initiator's MaxRecvDataSegmentLength
	maxBurst, firstBurst      uint32
	maxR2T                    uint32
	time2Wait, time2Retain    uint32
}

// defaultParams are the values that hold for keys that nobody mentions.
func defaultParams() params {
	return params{initialR2T: true, immediateData: true, maxXmit: 8192, maxBurst: 262144, firstBurst: 65536,
		maxR2T: 1, time2Wait: 2, time2Retain: 20}
}

// negotiator answers the operational keys of one login.
type negotiator struct {
	limits    *Limits
	p         params
	discovery bool
	seen      map[string]bool
}

// answer takes one key of the initiator and returns our value for it; silent is
// set for declarations, which have no answer. An error ends the login.
func (n *negotiator) answer(key, value string) (reply string, silent bool, err error) {
	if n.seen[key] {
		return "", false, violation(ErrLogin, 0, "%s negotiated twice", key)
	}
	if n.seen == nil {
		n.seen = make(map[string]bool)
	}
	n.seen[key] = true
	if value == valNotUnderstood || value == valReject || value == valIrrelevant {
		return "", true, nil // an answer to something that we declared
	}

	switch key {
	case keyHeaderDigest:
		return digest(value, &n.p.headerDigest), false, nil
	case keyDataDigest:
		return digest(value, &n.p.dataDigest), false, nil
	case keyMaxRecvSegment:
		v, ok := parseLength(value)
		if !ok {
			return "", false, violation(ErrLogin, 0, "%s out of range", key)
		}
		n.p.maxXmit = v
		return "", true, nil
	case keyTaskReporting:
		if v, ok := choose(value, "RFC3720"); ok {
			return v, false, nil
		}
		return valReject, false, nil
	case keyProtocolLevel:
		return number(value, 0, 31, func(v uint32) uint32 { return min(v, 1) }, nil), false, nil
	}
	if reply := obsolete(key); reply != "" {
		return reply, false, nil
	}

	reply, known := n.sessionKey(key, value)
	if !known {
		return valNotUnderstood, false, nil
	}
	if n.discovery && reply != valReject && !alwaysRelevant(key) {
		return valIrrelevant, false, nil
	}
	return reply, false, nil
}

// obsolete returns the answer to a key that RFC 7143 has made obsolete and that must not be answered with NotUnderstood; it is
// empty for all others.
func obsolete(key string) string {
	switch key {
	case "IFMarker", "OFMarker":
		return valNo
	case "IFMarkInt", "OFMarkInt":
		return valReject
	}
	return ""
}

// alwaysRelevant tells whether a session key is negotiated in discovery sessions,
// too: RFC 7143 13 lists no exception for these, and open-iscsi takes "Irrelevant"
// for its error recovery level as a refusal.
func alwaysRelevant(key string) bool {
	return key == keyRecoveryLevel || key == keyTime2Wait || key == keyTime2Retain
}

// sessionKey answers the keys of a session.
func (n *negotiator) sessionKey(key, value string) (reply string, known bool) {
	lim := n.limits
	lower := func(ours uint32) func(uint32) uint32 { return func(v uint32) uint32 { return min(v, ours) } }
	switch key {
	case keyMaxConnections:
		return number(value, 1, 65535, lower(1), nil), true
	case keyInitialR2T: // result is the OR; ours is No
		return boolean(value, func(v bool) bool { return v }, &n.p.initialR2T), true
	case keyImmediateData: // result is the AND; ours is Yes
		return boolean(value, func(v bool) bool { return v }, &n.p.immediateData), true
	case keyMaxBurst:
		return number(value, leastSegment, mostSegment, lower(uint32(lim.MaxBurst)), &n.p.maxBurst), true
	case keyFirstBurst:
		return number(value, leastSegment, mostSegment, lower(uint32(lim.FirstBurst)), &n.p.firstBurst), true
	case keyTime2Wait:
		return number(value, 0, 3600, func(v uint32) uint32 { return v }, &n.p.time2Wait), true
	case keyTime2Retain: // no state is kept for a session that lost its connection
		return number(value, 0, 3600, lower(0), &n.p.time2Retain), true
	case keyMaxR2T:
		return number(value, 1, 65535, lower(uint32(lim.MaxOutstandingR2T)), &n.p.maxR2T), true
	case keyPDUInOrder, keySeqInOrder: // result is the OR; ours is Yes
		return boolean(value, func(bool) bool { return true }, nil), true
	case keyRecoveryLevel:
		return number(value, 0, 2, lower(0), nil), true
	}
	return "", false
}

func digest(list string, on *bool) string {
	v, ok := choose(list, valNone, digestCRC32C)
	if !ok {
		return valReject
	}
	*on = v == digestCRC32C
	return v
}

func boolean(value string, result func(bool) bool, out *bool) string {
	if value != valYes && value != valNo {
		return valReject
	}
	v := result(value == valYes)
	if out != nil {
		*out = v
	}
	if v {
		return valYes
	}
	return valNo
}

func number(value string, low, high uint32, result func(uint32) uint32, out *uint32) string {
	v, ok := parseNumber(value)
	if !ok || v < low || v > high {
		return valReject
	}
	v = result(v)
	if out != nil {
		*out = v
	}
	return strconv.FormatUint(uint64(v), 10)
}
