package tcmurunner

import (
	"testing"

	"github.com/arraysim/arraysim/internal/lun"
)

// transport carries nothing out, and notes what it must not send again.
type transport struct{ once bool }

func (t *transport) Start(c *lun.Command) {
	t.once = c.Once
	go c.Done(c)
}
func (*transport) Cancel(*lun.Command) {}
func (*transport) Close()              {}

// TestWhatIsNotSentAgain: after a lost connection a session sends again what does the same a second time, and nothing else.
func TestWhatIsNotSentAgain(t *testing.T) {
	k := &transport{}
	u := &Unit{t: k}
	for name, row := range map[string]struct {
		cdb  []byte
		once bool
	}{
		"TEST UNIT READY":              {make([]byte, 6), false},
		"READ(16)":                     {rw(0x88, 0, 1), false},
		"WRITE(16)":                    {rw(0x8A, 0, 1), false},
		"WRITE SAME(16)":               {rw(0x93, 0, 1), false},
		"COMPARE AND WRITE":            {rw(0x89, 0, 0), true},
		"ORWRITE(16)":                  {rw(0x8B, 0, 1), true},
		"EXTENDED COPY":                {rw(0x83, 0, 0), true},
		"PERSISTENT RESERVE OUT":       {[]byte{0x5F, 9: 0}, true},
		"WRITE SAME(32)":               {[]byte{0: 0x7F, 7: 0x18, 9: 0x0D, 31: 0}, false},
		"ORWRITE(32)":                  {[]byte{0: 0x7F, 7: 0x18, 9: 0x0E, 31: 0}, true},
		"a variable CDB that is short": {[]byte{0x7F, 0, 0, 0, 0, 0, 0, 0}, false},
	} {
		var sense [SenseLen]byte
		if u.Do(row.cdb, nil, &sense); k.once != row.once {
			t.Errorf("%s: once is %v", name, k.once)
		}
	}
}
