package sgl

import (
	"bytes"
	"testing"
)

// clip and split agree, wherever the parts of a list and the cut are.
func TestSplit(t *testing.T) {
	all := []byte("abcdefgh")
	for _, v := range [][][]byte{{all}, {all[:3], all[3:]}, {nil, all[:1], nil, all[1:4], all[4:], nil}} {
		for n := range uint64(len(all) + 1) {
			first, rest := Split(v, n)
			if got, want := string(bytes.Join(first, nil)), string(all[:n]); got != want {
				t.Errorf("the first %d of %q are %q", n, v, got)
			}
			if got, want := string(bytes.Join(rest, nil)), string(bytes.Join(Clip(v, n, uint64(len(all))-n), nil)); got != want {
				t.Errorf("behind the first %d of %q is %q, want %q", n, v, got, want)
			}
		}
	}
}

// TestPatterns holds Joined, IsZero and Repeat against the bytes in one piece.
func TestPatterns(t *testing.T) {
	for _, v := range [][][]byte{nil, {nil}, {[]byte("ab"), nil, []byte("cde")}} {
		all := bytes.Join(v, nil)
		for n := range len(all) + 3 {
			if got := Joined(v, n); !bytes.Equal(got, all[:min(n, len(all))]) {
				t.Errorf("%d bytes of %q are %q", n, v, got)
			}
		}
	}
	for _, n := range []int{0, 1, 511, 4096, 4097, 10_000} {
		v := [][]byte{make([]byte, n/3), nil, make([]byte, n-n/3)}
		if !IsZero(v) {
			t.Errorf("%d zeros are not zero", n)
		}
		for _, at := range []int{0, n / 2, n - 1} {
			if n == 0 {
				continue
			}
			b := bytes.Join(v, nil)
			if b[at] = 1; IsZero([][]byte{b[:n/2], b[n/2:]}) {
				t.Errorf("%d bytes with one at %d are zero", n, at)
			}
		}
	}
	for n, want := range map[int]string{0: "", 2: "ab", 3: "abc", 7: "abcabca"} {
		if got := Repeat([]byte("abc"), n); string(got) != want {
			t.Errorf("%d bytes of it are %q", n, got)
		}
	}
}
