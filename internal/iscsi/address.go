package iscsi

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Address is where an iSCSI logical unit is.
type Address struct {
	Portal, Target string
	LUN            uint64 // as on the wire
	CHAP           *CHAP
}

const scheme = "iscsi://"

var (
	// plain is an address, or the beginning of one, that has nothing which could be a secret: no credential, and no port that is
	// no number, as in user:secret.
	plain = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.-]*:/*)?(?:(?:\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[^%@]*)?)?$`)
	// portal is a host, an IPv6 address in brackets and perhaps with a zone, and a port.
	portal = regexp.MustCompile(`^(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[\pL\pN._-]+)(?::[0-9]{1,5})?$`)
	// credential is one without a scheme before it, where a path would be.
	credential = regexp.MustCompile(`(?s)^(?://.*[%:]|[^/.].*[%:]|[%:]).*@`)
)

// IsAddress tells what is meant as an address from the path of a file or a device. ParseAddress says what is wrong with it.
func IsAddress(s string) bool {
	first, _, ok := strings.Cut(s, ":")
	return ok && strings.EqualFold(first, "iscsi") || strings.Contains(s, "://") || credential.MatchString(s)
}

// ParseAddress reads iscsi://[user[%secret]@]host[:port]/iqn/lun. A secret may have any character, an '@' as well. Its errors
// show none.
func ParseAddress(s string) (Address, error) {
	a, why := parse(s)
	if why != "" {
		return Address{}, fmt.Errorf("%q is not a valid address of a LUN (%s); write it as iscsi://[user[%%secret]@]host[:port]/iqn/lun", WithoutSecret(s), why)
	}
	return a, nil
}

// parse says why what it is given is no address.
func parse(s string) (a Address, why string) {
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		return a, "it does not begin with " + scheme
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, secret, _ := strings.Cut(rest[:at], "%")
		if decoded, err := url.PathUnescape(secret); err == nil {
			secret = decoded
		}
		a.CHAP = &CHAP{User: user, Secret: []byte(secret)}
		rest = rest[at+1:]
	}
	parts := strings.Split(rest, "/")
	switch {
	case parts[0] == "":
		return a, "it has no host"
	case !portal.MatchString(parts[0]) && net.ParseIP(parts[0]) == nil:
		return a, "its host is not valid; an @ ends a credential"
	case len(parts) != 3 || parts[1] == "":
		return a, "the host is not followed by just a target's name and a LUN"
	}
	n, err := strconv.ParseUint(parts[2], 10, 14)
	if err != nil {
		return a, "its LUN is not 0 to 16383"
	}
	return At(parts[0], parts[1], n, a.CHAP), ""
}

// At is the address of a LUN by its number, 0 to 16383, at a host with or without a port.
func At(host, target string, number uint64, chap *CHAP) Address {
	a := Address{Portal: host, Target: target, LUN: number << 48, CHAP: chap}
	if number >= 256 { // SAM-5 4.7: peripheral device addressing below, flat space above
		a.LUN |= 1 << 62
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		a.Portal = net.JoinHostPort(strings.Trim(host, "[]"), "3260")
	}
	return a
}

// WithoutSecret is an address, or what should be one, as a message may show it: without its credential, and cut where one may
// begin if it cannot be told where it ends. A path stays as it is.
func WithoutSecret(s string) string {
	if _, why := parse(s); why == "" {
		return scheme + s[max(len(scheme), strings.LastIndexByte(s, '@')+1):]
	}
	if !IsAddress(s) || plain.MatchString(s) {
		return s
	}
	begin := 0
	if at := strings.Index(s, "://"); at >= 0 {
		begin = at + len("://")
	}
	if n := strings.IndexAny(s[begin:], "%@:"); n >= 0 {
		return s[:begin+n] + "..."
	}
	return s
}
