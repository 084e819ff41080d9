package request

import (
	"fmt"
	"strings"
	"testing"
)

// TestChangesOfState: what the table of a kind does not have panics and says why; what it has is done.
func TestChangesOfState(t *testing.T) {
	panics := func(fn func()) (why string) {
		defer func() {
			if r := recover(); r != nil {
				why = fmt.Sprint(r)
			}
		}()
		fn()
		return ""
	}
	e := &Engine{rules: allowed}
	for k := range NumKinds {
		for to := range NumStates {
			for from := range NumStates {
				may := allowed.may[k][to]>>from&1 != 0
				name := fmt.Sprintf("a %s that is %s cannot become %s", kindNames[k], stateNames[from], stateNames[to])
				o := &op{e: e, kind: k, state: from}
				if why := panics(func() { o.to(to) }); may != (why == "") || !may && !strings.Contains(why, name) || may && o.state != to {
					t.Errorf("%s: %q, in the table %v", name, why, may)
				}
			}
		}
	}
}
