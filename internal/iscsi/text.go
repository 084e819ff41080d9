package iscsi

import (
	"bytes"
	"strconv"
	"strings"
)

// Limits of key=value text (RFC 7143 6.1 allows 63 bytes of key, 255 of most
// values; a CHAP binary of 1024 bytes takes 2050 as hexadecimal).
const (
	maxKeyLen   = 63
	maxValueLen = 4096
	maxKeys     = 128
	maxTextLen  = 64 << 10 // of one negotiation step, over all its PDUs
)

// Constants of negotiation (RFC 7143 6.2).
const (
	valNotUnderstood = "NotUnderstood"
	valIrrelevant    = "Irrelevant"
	valReject        = "Reject"
	valNone          = "None"
	valYes           = "Yes"
	valNo            = "No"
)

type pair struct{ key, value string }

// parseText splits the text of a negotiation step. Keys keep their order.
func parseText(data []byte) ([]pair, error) {
	var pairs []pair
	for len(data) > 0 {
		end := bytes.IndexByte(data, 0)
		if end < 0 {
			return nil, violation(ErrText, rejectProtocol, "text is not terminated")
		}
		item := data[:end]
		data = data[end+1:]
		if len(item) == 0 {
			continue // padding that the sender counted in
		}
		key, value, ok := bytes.Cut(item, []byte{'='})
		switch {
		case !ok:
			return nil, violation(ErrText, rejectProtocol, "no '=' in a key")
		case len(key) == 0 || len(key) > maxKeyLen || !isKeyName(key):
			return nil, violation(ErrText, rejectProtocol, "bad key name")
		case len(value) > maxValueLen:
			return nil, violation(ErrText, rejectProtocol, "value of %s has %d bytes", key, len(value))
		case len(pairs) == maxKeys:
			return nil, violation(ErrText, rejectProtocol, "more than %d keys", maxKeys)
		}
		pairs = append(pairs, pair{string(key), string(value)})
	}
	return pairs, nil
}

// isKeyName tells whether every byte is a standard-label character (RFC 7143 6.1).
func isKeyName(key []byte) bool {
	for _, b := range key {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		case b == '.' || b == '-' || b == '+' || b == '@' || b == '_' || b == '#' || b == '/':
		default:
			return false
		}
	}
	return true
}

func appendKey(dst []byte, key, value string) []byte {
	dst = append(dst, key...)
	dst = append(dst, '=')
	dst = append(dst, value...)
	return append(dst, 0)
}

// parseNumber reads a numerical value: decimal, or hexadecimal with 0x.
func parseNumber(s string) (uint32, bool) {
	base := 10
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		s, base = s[2:], 16
	}
	if s == "" || s[0] == '+' || s[0] == '-' || s[0] == '_' {
		return 0, false
	}
	v, err := strconv.ParseUint(s, base, 32)
	return uint32(v), err == nil
}

// parseLength reads the value of a key that is a length of data.
func parseLength(s string) (uint32, bool) {
	v, ok := parseNumber(s)
	return v, ok && v >= leastSegment && v <= mostSegment
}

// choose returns the first value of the initiator's list that we support: the
// list is in the order of the initiator's preference (RFC 7143 6.2.1).
func choose(list string, supported ...string) (string, bool) {
	for v := range strings.SplitSeq(list, ",") {
		for _, s := range supported {
			if v == s {
				return v, true
			}
		}
	}
	return "", false
}
