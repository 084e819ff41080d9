package iscsi

import (
	"fmt"
	"strconv"
)

// Stages of a login (RFC 7143 11.12.3).
const (
	stageSecurity    = 0
	stageOperational = 1
	stageFull        = 3
)

// Login status, class and detail (RFC 7143 11.13.5).
const (
	loginOK             = 0x0000
	loginInitiatorError = 0x0200
	loginAuthFailed     = 0x0201
	loginForbidden      = 0x0202
	loginNotFound       = 0x0203
	loginBadVersion     = 0x0205
	loginTooManyConns   = 0x0206
	loginMissing        = 0x0207
	loginSessionType    = 0x0209
	loginNoSession      = 0x020a
	loginUnavailable    = 0x0301
	loginNoResources    = 0x0302
)

// loginSegment is what an initiator accepts in a login response: nothing is
// negotiated yet, so the default MaxRecvDataSegmentLength holds.
const loginSegment = 8192

// login is the target's side of one login: requests in, replies out. It owns no
// descriptor.
type login struct {
	portal *Portal
	group  uint16 // target portal group tag
	neg    negotiator

	stage   byte
	started bool
	isid    [6]byte
	tsih    uint16
	cid     uint16
	itt     uint32

	initiator, alias, targetName string
	target                       *target // nil in a discovery session
	auth                         *CHAP
	chap                         chapServer
	announced, declared          bool

	text    []byte // collected over requests with the C bit
	pending []byte // reply text that did not fit
	pduLeft int
}

// loginReply is what to answer: the flags byte, the text, and a status that ends
// the login when it is not loginOK. full tells that the login is complete.
type loginReply struct {
	flags  byte
	text   []byte
	status uint16
	full   bool
}

func newLogin(p *Portal, group uint16) *login {
	return &login{portal: p, group: group, neg: negotiator{limits: &p.limits, p: defaultParams()}, pduLeft: 64}
}

// step takes one Login request. The error says, for the log, why the status of
// the reply is a failure.
func (l *login) step(h bhs, data []byte) (loginReply, error) {
	fail := func(status uint16, format string, args ...any) (loginReply, error) {
		kind := ErrLogin
		if status == loginAuthFailed || status == loginForbidden {
			kind = ErrAuth
		}
		return loginReply{status: status}, violation(kind, 0, format, args...)
	}
	flags := h[offFlags]
	csg, nsg := flags>>2&3, flags&3
	transit, more := flags&flagFinal != 0, flags&flagContinue != 0

	if l.pduLeft--; l.pduLeft < 0 {
		return fail(loginInitiatorError, "login takes too many PDUs")
	}
	if !l.started {
		if h[offVersionMin] != 0 {
			return fail(loginBadVersion, "version %d is not supported", h[offVersionMin])
		}
		copy(l.isid[:], h[offISID:])
		l.tsih, l.cid, l.itt = h.u16(offTSIH), h.u16(offCID), h.itt()
		l.stage, l.started = csg, true
	}
	switch {
	case [6]byte(h[offISID:offISID+6]) != l.isid || h.u16(offTSIH) != l.tsih || h.u16(offCID) != l.cid || h.itt() != l.itt:
		return fail(loginInitiatorError, "identifiers changed during login")
	case csg != l.stage || csg > stageOperational:
		return fail(loginInitiatorError, "stage %d in stage %d", csg, l.stage)
	case transit && more:
		return fail(loginInitiatorError, "T and C in one request")
	case transit && (nsg <= csg || nsg == 2):
		return fail(loginInitiatorError, "transition from stage %d to %d", csg, nsg)
	case len(l.text)+len(data) > maxTextLen:
		return fail(loginInitiatorError, "login text is too long")
	}
	here := csg << 2

	if len(l.pending) > 0 {
		if len(data) > 0 {
			return fail(loginInitiatorError, "text before the end of the portal's own text")
		}
	} else {
		l.text = append(l.text, data...)
		if more {
			return loginReply{flags: here}, nil
		}
		pairs, err := parseText(l.text)
		l.text = l.text[:0]
		if err != nil {
			return loginReply{status: loginInitiatorError}, err
		}
		reply, status, err := l.negotiate(pairs, csg)
		if err != nil {
			return loginReply{status: status}, err
		}
		l.pending = reply
	}

	out := l.pending
	if len(out) > loginSegment {
		l.pending = l.pending[loginSegment:]
		return loginReply{flags: here | flagContinue, text: out[:loginSegment]}, nil
	}
	l.pending = nil
	if !transit || !l.authenticated() {
		return loginReply{flags: here, text: out}, nil
	}
	l.stage = nsg
	return loginReply{flags: flagFinal | here | nsg, text: out, full: nsg == stageFull}, nil
}

func (l *login) authenticated() bool { return l.auth == nil || l.chap.done }

// negotiate answers the keys of one step.
func (l *login) negotiate(pairs []pair, stage byte) (out []byte, status uint16, err error) {
	keys := make(map[string]string, len(pairs))
	for _, kv := range pairs {
		if _, dup := keys[kv.key]; dup {
			return nil, loginInitiatorError, violation(ErrLogin, 0, "%s given twice", kv.key)
		}
		keys[kv.key] = kv.value
	}
	if l.initiator == "" {
		if status, err := l.identify(keys); err != nil {
			return nil, status, err
		}
	}
	if stage != stageSecurity && !l.authenticated() {
		return nil, loginAuthFailed, violation(ErrAuth, 0, "%s skipped the security stage", l.initiator)
	}
	if !l.announced && l.target != nil {
		l.announced = true
		if l.target.Alias != "" {
			out = appendKey(out, keyTargetAlias, l.target.Alias)
		}
		out = appendKey(out, keyPortalGroup, strconv.Itoa(int(l.group)))
	}

	for _, kv := range pairs {
		switch kv.key {
		case keyInitiatorName, keyTargetName, keySessionType, keyInitiatorAlias:
			// Declarations; identify has read them.
		case keyAuthMethod:
			if stage != stageSecurity {
				return nil, loginInitiatorError, violation(ErrLogin, 0, "AuthMethod outside the security stage")
			}
			method := valNone
			if l.auth != nil {
				method = "CHAP"
			}
			if _, ok := choose(kv.value, method); !ok {
				return nil, loginAuthFailed, violation(ErrAuth, 0, "%s offers no AuthMethod that the target accepts", l.initiator)
			}
			out = appendKey(out, keyAuthMethod, method)
		case keyChapA, keyChapI, keyChapC, keyChapN, keyChapR:
			if stage != stageSecurity || l.auth == nil {
				return nil, loginInitiatorError, violation(ErrLogin, 0, "%s was not requested", kv.key)
			}
		default:
			reply, silent, err := l.neg.answer(kv.key, kv.value)
			if err != nil {
				return nil, loginInitiatorError, err
			}
			if !silent {
				out = appendKey(out, kv.key, reply)
			}
		}
	}
	if stage == stageSecurity && l.auth != nil {
		if out, err = l.chap.step(keys, out); err != nil {
			return nil, loginAuthFailed, err
		}
	}
	if stage == stageOperational && !l.declared {
		l.declared = true
		out = appendKey(out, keyMaxRecvSegment, strconv.Itoa(l.portal.limits.MaxRecvSegment))
	}
	return out, loginOK, nil
}

// identify reads what the first request must say: who wants to log in to what.
func (l *login) identify(keys map[string]string) (status uint16, err error) {
	name := keys[keyInitiatorName]
	switch {
	case name == "":
		return loginMissing, violation(ErrLogin, 0, "no InitiatorName")
	case CheckName(name) != nil:
		return loginInitiatorError, violation(ErrLogin, 0, "InitiatorName: %v", CheckName(name))
	}
	l.initiator, l.alias, l.targetName = name, keys[keyInitiatorAlias], keys[keyTargetName]

	switch keys[keySessionType] {
	case "Discovery":
		l.neg.discovery = true
		l.auth = l.portal.cfg.DiscoveryCHAP.of(name)
	case "Normal", "":
		if l.targetName == "" {
			return loginMissing, violation(ErrLogin, 0, "no TargetName")
		}
		l.target = l.portal.targets[FoldName(l.targetName)]
		if l.target == nil {
			return loginNotFound, violation(ErrLogin, 0, "target %q does not exist", l.targetName)
		}
		if !l.target.allows(name) {
			return loginForbidden, violation(ErrAuth, 0, "%s may not log in to %s", name, l.targetName)
		}
		l.auth = l.target.CHAP.of(name)
	default:
		return loginSessionType, violation(ErrLogin, 0, "SessionType %q", keys[keySessionType])
	}
	l.chap.conf = l.auth
	return loginOK, nil
}

// port is the name of the initiator's SCSI port (RFC 7143 4.2.7, SAM).
func (l *login) port() string { return fmt.Sprintf("%s,i,0x%x", l.initiator, l.isid[:]) }
