package iscsi

import (
	"net"
	"slices"
	"strconv"
)

// textExchange is a Text negotiation under way; one at a time.
type textExchange struct {
	tag uint32 // of the exchange, when it has more than one PDU
	in  []byte // collected over requests with the C bit
	out []byte // not yet sent
}

// finishText answers a Text request, in as many responses as the initiator's
// MaxRecvDataSegmentLength asks for; it fetches each with an empty request.
func (c *conn) finishText(h bhs) error {
	var data []byte
	if c.body != nil {
		data = append(data, c.body.B[:h.dataLen()]...)
		c.body.Put()
		c.body = nil
	}
	x := &c.text
	switch h.ttt() {
	case noTag: // a new exchange; it ends what was under way
		*x = textExchange{tag: c.newTag()}
	case x.tag:
	default:
		return violation(ErrText, rejectProtocol, "text with target transfer tag %#x", h.ttt())
	}
	if len(x.out) > 0 && len(data) > 0 {
		return violation(ErrText, rejectProtocol, "text before the end of the portal's own text")
	}
	if len(x.in)+len(data) > maxTextLen {
		return violation(ErrText, rejectProtocol, "text is too long")
	}
	more := h[offFlags]&flagContinue != 0
	if more && h.final() {
		return violation(ErrText, rejectProtocol, "F and C in one text request")
	}
	x.in = append(x.in, data...)
	if !more && len(x.out) == 0 {
		pairs, err := parseText(x.in)
		if err != nil {
			return err
		}
		for i, kv := range pairs { // RFC 7143 6.1: a key once; each SendTargets asks all targets
			if slices.ContainsFunc(pairs[:i], func(o pair) bool { return o.key == kv.key }) {
				return violation(ErrText, rejectProtocol, "%s twice", kv.key)
			}
		}
		x.in = nil
		x.out = c.answerText(pairs)
	}

	ct := getControl(opTextResp)
	ct.credit = !h.immediate()
	n := min(len(x.out), int(c.maxXmit.Load()))
	ct.data, x.out = slices.Clone(x.out[:n]), x.out[n:] // what is sent must not keep the rest
	r := bhs(ct.hdr[:])
	r.put32(offITT, h.itt())
	switch {
	case len(x.out) > 0:
		r[offFlags] = flagContinue
		r.put32(offTTT, x.tag)
	case more || !h.final():
		r[offFlags] = 0
		r.put32(offTTT, x.tag)
	default:
		r.put32(offTTT, noTag)
		*x = textExchange{tag: noTag}
	}
	c.enqueue(outItem{ctl: ct})
	return nil
}

// answerText answers the keys that have a meaning in full feature phase.
func (c *conn) answerText(pairs []pair) []byte {
	var out []byte
	for _, kv := range pairs {
		switch kv.key {
		case keySendTargets:
			out = c.sendTargets(out, kv.value)
		case keyMaxRecvSegment: // a declaration, allowed at any time
			if v, ok := parseLength(kv.value); ok {
				c.maxXmit.Store(segmentLimit(v))
			} else {
				out = appendKey(out, kv.key, valReject)
			}
		case keyInitiatorAlias:
		case keyHeaderDigest, keyDataDigest, keyMaxConnections, keyInitialR2T, keyImmediateData, keyMaxBurst,
			keyFirstBurst, keyTime2Wait, keyTime2Retain, keyMaxR2T, keyPDUInOrder, keySeqInOrder, keyRecoveryLevel,
			keyTaskReporting, keyProtocolLevel, keyInitiatorName, keyTargetName, keySessionType, keyAuthMethod:
			out = appendKey(out, kv.key, valReject) // login only
		default:
			out = appendKey(out, kv.key, valNotUnderstood)
		}
	}
	return out
}

// sendTargets answers SendTargets (RFC 7143 Appendix C): All only in a discovery
// session, a name in both kinds, nothing for the target of a normal session.
// Only targets that the initiator may use are told of.
func (c *conn) sendTargets(out []byte, value string) []byte {
	s := c.session
	switch {
	case value == "All" && s.target == nil:
		for _, t := range c.portal.order {
			out = c.appendTarget(out, t)
		}
		return out
	case value == "All", value == "" && s.target == nil:
		return appendKey(out, keySendTargets, valReject)
	case value == "":
		return c.appendTarget(out, s.target)
	}
	t := c.portal.targets[FoldName(value)]
	if t == nil || s.target != nil && t != s.target {
		if !validName(value) {
			return appendKey(out, keySendTargets, valReject)
		}
		return out
	}
	return c.appendTarget(out, t)
}

func (c *conn) appendTarget(out []byte, t *target) []byte {
	s := c.session
	if t != s.target {
		if !t.allows(s.initiator) {
			return out
		}
		h := t.home.Load()
		h.exec.Lock()
		visible := h.handler.Visible(s.initiator)
		h.exec.Unlock()
		if !visible {
			return out
		}
	}
	out = appendKey(out, keyTargetName, t.Name)
	for _, a := range c.portalAddresses() {
		out = appendKey(out, keyTargetAddress, a)
	}
	return out
}

// portalAddresses are the addresses that initiators should use, with their portal
// group tags.
func (c *conn) portalAddresses() []string {
	if a := c.portal.cfg.Address; a != "" {
		return []string{a + "," + strconv.Itoa(int(c.group))}
	}
	here, ok := c.nc.LocalAddr().(*net.TCPAddr)
	if !ok {
		return []string{c.nc.LocalAddr().String() + "," + strconv.Itoa(int(c.group))}
	}
	c.portal.mu.Lock()
	defer c.portal.mu.Unlock()
	var all []string
	for _, l := range c.portal.listeners {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			if ip := reachable(a.IP, here.IP); ip != nil {
				all = append(all, net.JoinHostPort(ip.String(), strconv.Itoa(a.Port))+","+strconv.Itoa(int(l.group)))
			}
		}
	}
	return all
}

// reachable returns the address by which an initiator that came to here reaches a portal that listens at ip; nil where
// none is known.
func reachable(ip, here net.IP) net.IP {
	switch {
	case ip.IsUnspecified():
		// The address by which it came leads there too, if it is of the portal's family. The unspecified address of IPv6
		// takes both.
		if ip.To4() != nil && here.To4() == nil {
			return nil
		}
		return here
	case ip.IsLoopback() && !here.IsLoopback():
		return nil // to another machine that is the machine itself
	}
	return ip
}
