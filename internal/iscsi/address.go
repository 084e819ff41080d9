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
	CHAP           *CHAP  // what the address says itself; LoadAddress completes it
	// SecretFile and MutualSecretFile are the files of the secrets, "" without one.
	SecretFile, MutualSecretFile string
}

const scheme = "iscsi://"

var (
	// plain is an address, or the beginning of one, that has nothing which could be a secret: no credential, and no port that is
	// no number, as in user:secret.
	plain = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9+.-]*:/*)?(?:(?:\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[^%@?]*)?)?$`)
	// portal is a host, an IPv6 address in brackets and perhaps with a zone, and a port.
	portal = regexp.MustCompile(`^(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[\pL\pN._-]+)(?::[0-9]{1,5})?$`)
	// credential is one without a scheme before it, where a path would be.
	credential = regexp.MustCompile(`(?s)^(?://.*[%:]|[^/.].*[%:]|[%:]).*@`)
	// question begins what an address says of files. A secret may have a question mark, too.
	question = regexp.MustCompile(`\?(?:secret_file|mutual_user|mutual_secret_file)=`)
)

// Form is how an address is written.
const Form = "iscsi://[user@]host[:port]/iqn/lun[?secret_file=FILE]"

// IsAddress tells what is meant as an address from the path of a file or a device. ParseAddress says what is wrong with it.
func IsAddress(s string) bool {
	first, _, ok := strings.Cut(s, ":")
	return ok && strings.EqualFold(first, "iscsi") || strings.Contains(s, "://") || credential.MatchString(s)
}

// ParseAddress reads iscsi://[user[%secret]@]host[:port]/iqn/lun[?secret_file=FILE&mutual_user=USER&mutual_secret_file=FILE].
// A secret may have any character, an '@' as well. Nothing is read: [LoadAddress] does. Its errors show no secret.
func ParseAddress(s string) (Address, error) {
	a, why := parse(s)
	if why != "" {
		return Address{}, fmt.Errorf("%q is not a valid address of a LUN (%s); write it as %s", WithoutSecret(s), why, Form)
	}
	return a, nil
}

// parts takes an address apart, without its scheme.
func parts(rest string) (login, place, files string) {
	if at := question.FindStringIndex(rest); at != nil {
		rest, files = rest[:at[0]], rest[at[0]+1:]
	}
	at := strings.LastIndexByte(rest, '@')
	return rest[:max(at, 0)], rest[at+1:], files
}

const wrongFiles = "behind its ? can be secret_file, mutual_user and mutual_secret_file, each once, with = and a value"

// readFiles reads what is behind the question mark of an address.
func readFiles(files string, into map[string]*string) (ok bool) {
	if files == "" {
		return true
	}
	for pair := range strings.SplitSeq(files, "&") {
		key, value, _ := strings.Cut(pair, "=")
		decoded, err := url.PathUnescape(value)
		to := into[key]
		if to == nil || *to != "" || decoded == "" || err != nil {
			return false
		}
		*to = decoded
	}
	return true
}

// parse says why what it is given is no address.
func parse(s string) (a Address, why string) {
	rest, ok := strings.CutPrefix(s, scheme)
	if !ok {
		return a, "it does not begin with " + scheme
	}
	login, rest, files := parts(rest)
	var chap CHAP
	if user, secret, ok := strings.Cut(login, "%"); ok || user != "" {
		if decoded, err := url.PathUnescape(secret); err == nil {
			secret = decoded
		}
		chap.User, chap.Secret = user, []byte(secret)
	}
	if !readFiles(files, map[string]*string{"secret_file": &a.SecretFile, "mutual_user": &chap.MutualUser, "mutual_secret_file": &a.MutualSecretFile}) {
		return a, wrongFiles
	}
	if len(chap.Secret) > 0 && a.SecretFile != "" {
		return a, "it has a secret and a secret_file"
	}
	if login != "" || files != "" {
		a.CHAP = &chap
	}
	fields := strings.Split(rest, "/")
	switch {
	case fields[0] == "":
		return a, "it has no host"
	case !portal.MatchString(fields[0]) && net.ParseIP(fields[0]) == nil:
		return a, "its host is not valid; an @ ends a credential"
	case len(fields) != 3 || fields[1] == "":
		return a, "after the host there must be only a target's name and a LUN"
	case strings.Contains(fields[2], "?"):
		return a, wrongFiles
	}
	n, err := strconv.ParseUint(fields[2], 10, 14)
	if err != nil {
		return a, "its LUN is not 0 to 16383"
	}
	at := At(fields[0], fields[1], n, a.CHAP)
	at.SecretFile, at.MutualSecretFile = a.SecretFile, a.MutualSecretFile
	return at, ""
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

// WithoutSecret is an address, or what should be one, as a message may show it: without its credential and the files of its
// secrets, and cut where a credential may begin if it cannot be told where it ends. A path stays as it is. It is the same
// whatever a unit is logged in to with.
func WithoutSecret(s string) string {
	if _, why := parse(s); why == "" {
		_, place, _ := parts(s[len(scheme):])
		return scheme + place
	}
	if !IsAddress(s) || plain.MatchString(s) {
		return s
	}
	begin := 0
	if at := strings.Index(s, "://"); at >= 0 {
		begin = at + len("://")
	}
	if n := strings.IndexAny(s[begin:], "%@:?"); n >= 0 {
		return s[:begin+n] + "..."
	}
	return s
}
