package admin

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names that come from hosts, from files and from other daemons end up on terminals. A terminal obeys
// control characters, so none of them may get there: they are written as \u001b, which is what JSON has
// for them, too. Bytes that are no UTF-8 are written as \x9b.

// Printable returns text with its control characters written out. Line feeds and tabs are among them.
func Printable(text string) string {
	for i, r := range text {
		if control(r) || r == utf8.RuneError {
			var b strings.Builder
			b.WriteString(text[:i])
			writePrintable(&b, text[i:], false)
			return b.String()
		}
	}
	return text
}

// control tells whether a terminal may do something else with r than show it: controls (Cc), what
// changes the direction or joins (Cf), separators of lines and paragraphs, and private characters.
func control(r rune) bool {
	return r < ' ' || r == 0x7f || r > 0x7f && (unicode.Is(unicode.C, r) || r == 0x2028 || r == 0x2029)
}

// writePrintable writes text to b; lines leaves line feeds and tabs as they are.
func writePrintable(b *strings.Builder, text string, lines bool) {
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(b, `\x%02x`, text[0])
		case lines && (r == '\n' || r == '\t'), !control(r):
			b.WriteString(text[:n])
		case r > 0xffff:
			fmt.Fprintf(b, `\U%08x`, r)
		default:
			fmt.Fprintf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
}

// printer is a writer of text.
type printer struct {
	w    io.Writer
	part []byte // the beginning of a character whose end has not been written yet
}

// PrintableWriter returns a writer that writes text to w with its control characters written out, line feeds
// and tabs apart. It is not safe for concurrent use.
func PrintableWriter(w io.Writer) io.Writer { return &printer{w: w} }

// Write implements io.Writer. A character may come in two writes.
func (p *printer) Write(text []byte) (int, error) {
	all := append(p.part, text...)
	whole := len(all)
	for cut := 1; cut < utf8.UTFMax && cut <= len(all); cut++ {
		if at := len(all) - cut; utf8.RuneStart(all[at]) {
			if !utf8.FullRune(all[at:]) {
				whole = at
			}
			break
		}
	}
	var b strings.Builder
	writePrintable(&b, string(all[:whole]), true)
	p.part = append([]byte(nil), all[whole:]...)
	if _, err := io.WriteString(p.w, b.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}
