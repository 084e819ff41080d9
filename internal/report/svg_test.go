package report

import (
	"encoding/xml"
	"testing"
)

// TestSVGTakesAnyName: a name with bytes that XML does not have leaves a file that can be read.
func TestSVGTakesAnyName(t *testing.T) {
	for text, want := range map[string]string{"a<b>&\"c\"": "a<b>&\"c\"", "v\xff1": "v\uFFFD1", "\x00\x1b[2J": "\uFFFD\uFFFD[2J", "\uFFFE": "\uFFFD", "Größe\t1": "Größe\t1"} {
		var got string
		if err := xml.Unmarshal([]byte("<text>"+svgEscape(text)+"</text>"), &got); err != nil || got != want {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
}
