package admin

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/arraysim/arraysim/internal/testkit"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain, µs and 漢字": "plain, µs and 漢字",
		"a\x1b[2Jb":        `a\u001b[2Jb`,
		"a\nb\tc\r":        `a\u000ab\u0009c\u000d`,
		"\u009b31m":        `\u009b31m`,  // CSI of eight bits
		"\x9b31m":          `\x9b31m`,    // the same, as a byte
		"x\u202ey":         `x\u202ey`,   // what follows is shown backwards
		"\U000e0041":       `\U000e0041`, // a tag
		"\x7f":             `\u007f`,
		"a\xffb\xe2\x82":   `a\xffb\xe2\x82`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}

// However a text is cut into writes, the same is written, no control among it.
func TestPrintableWriter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	for range 500 {
		var in []byte
		for range 1 + rnd.IntN(40) {
			switch rnd.IntN(3) {
			case 0:
				in = append(in, byte(rnd.IntN(256)))
			case 1:
				in = utf8.AppendRune(in, rune(rnd.IntN(0x300)))
			default:
				in = utf8.AppendRune(in, rune(rnd.IntN(0x20000)))
			}
		}
		in = append(in, '\n')
		var one, cut bytes.Buffer
		_, _ = PrintableWriter(&one).Write(in)
		w := PrintableWriter(&cut)
		for rest := in; len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			if got, err := w.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("%d of %d bytes, %v", got, n, err)
			}
			rest = rest[n:]
		}
		if one.String() != cut.String() {
			t.Fatalf("%q at once is %q, in parts %q", in, one.String(), cut.String())
		}
		if !utf8.Valid(one.Bytes()) {
			t.Fatalf("%q is written as %q", in, one.String())
		}
		for _, r := range one.String() {
			if control(r) && r != '\n' && r != '\t' {
				t.Fatalf("%q is written as %q", in, one.String())
			}
		}
	}
}
