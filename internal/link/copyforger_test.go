package link

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// forger has the secret of two arrays, and answers the one that copies what it likes.
type forger struct {
	t      *testing.T
	dst    *side
	client *CopyClient
}

// newForger makes an array that copies from a forger. say answers its messages, but for its signs of life.
func newForger(t *testing.T, say func(c net.Conn, k kind, body []byte)) *forger {
	t.Helper()
	conf, err := identity([]byte(copySecret))
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go forge(c, say)
		}
	}()
	f := &forger{t: t, dst: newSide(t, 2)}
	if f.client, err = NewCopyClient(CopyClientConfig{Name: "forger", Nodes: []string{l.Addr().String()}, Secret: []byte(copySecret), times: unhurried}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Stop)
	f.dst.exec.Lock()
	scsi.LinkCopies(f.dst.target, f.client)
	f.dst.exec.Unlock()
	r := copyRig{t: t, client: f.client}
	r.linked(true)
	return f
}

const forgedWindow = 4 << 20

func forge(c net.Conn, say func(c net.Conn, k kind, body []byte)) {
	defer c.Close()
	buf := make([]byte, maxBody)
	if k, _, err := readMessage(c, buf); err != nil || k != kindCopyHello {
		return
	}
	w := copyWelcome{array: "forged", node: "f", units: copyUnits, pieces: copyPieces, window: forgedWindow}
	for b := w.append(nil); ; b = nil {
		if _, err := c.Write(b); err != nil {
			return
		}
		k, body, err := readMessage(c, buf)
		if err != nil {
			return
		}
		if k != kindPing {
			say(c, k, body)
		}
	}
}

// forgedToken is one that no array has made.
func forgedToken() []byte {
	b := make([]byte, 512)
	binary.BigEndian.PutUint32(b, 0x00800000) // point in time copy
	binary.BigEndian.PutUint16(b[6:], 0x01F8)
	return b
}

// lends answers a question for a token with a unit, whose data are so many sectors.
func lends(body []byte, sectors uint64, shift byte) []byte {
	q, err := parseBorrowing(body)
	if err != nil {
		return nil
	}
	b := appendLength(binary.AppendUvarint(be.AppendUint32(appendHead(nil, kindRuns), q.call), sectors<<2|uint64(block.Data)), 0)
	e := stepEnd{call: q.call, held: true, sectors: sectors, unit: foundUnit{ok: true, shift: shift, volume: "v"}}
	return e.append(b)
}

// TestForgedEnds: what another array says of the end of a copy never has a host take for copied what was not. It fails, and
// with a status and a sense key that no host takes for anything else; an array that says otherwise loses its link.
func TestForgedEnds(t *testing.T) {
	for _, c := range []struct {
		name          string
		status, sense uint64
		want          string
	}{
		{"TASK ABORTED", 0x40, 0, "40"},
		{"RESERVATION CONFLICT", 0x18, 0, "18"},
		{"MEDIUM ERROR", 2, 0x031100, "031100"},
		{"GOOD", 0, 0, "0a0d02"},
		{"CONDITION MET", 4, 0, "0a0d02"},
		{"no status", 0x7E, 0, "0a0d02"},
		{"a status of two bytes", 0x118, 0, "0a0d02"},
		{"NO SENSE", 2, 0, "0a0d02"},
		{"RECOVERED ERROR", 2, 0x010000, "0a0d02"},
		{"COMPLETED", 2, 0x0F0000, "0a0d02"},
		{"no sense key", 2, 0x130000, "0a0d02"},
		{"a sense code of five bytes", 2, 1<<32 | 0x031100, "0a0d02"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForger(t, func(conn net.Conn, k kind, body []byte) {
				switch k {
				case kindToken:
					conn.Write(lends(body, 64, 0))
				case kindPiece:
					if p, err := parsePieceHead(body); err == nil {
						conn.Write(appendUnit(nil, kindEnded, p.unit, c.status, c.sense))
					}
				}
			})
			h := f.dst.login(copyHost)
			if got := end(h.Do(redeem(0, 0, forgedToken(), 0, 64))); got != c.want {
				t.Errorf("the copy ends with %s, want %s", got, c.want)
			}
			if !bytes.Equal(f.dst.read(0, 0, 64), make([]byte, 64*512)) {
				t.Error("something was written")
			}
			f.dst.free()
		})
	}
}

// TestForgedTokens: the same of an answer to a question for a token.
func TestForgedTokens(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(body []byte) []byte
		want   string
	}{
		{"revoked", func(body []byte) []byte { return refuses(body, uint32(0x052305)) }, "052305"},
		{"RECOVERED ERROR", func(body []byte) []byte { return refuses(body, 0x010000) }, "052304"},
		{"no sense key", func(body []byte) []byte { return refuses(body, 0x1F2304) }, "052304"},
		{"half a block", func(body []byte) []byte { return lends(body, 9, 3) }, "052304"},
		{"a unit, and nothing of it", func(body []byte) []byte { return unitAlone(body, 0) }, "052304"},
		{"a unit, and that the token is revoked", func(body []byte) []byte { return unitAlone(body, 0x052305) }, "052304"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForger(t, func(conn net.Conn, k kind, body []byte) {
				if k == kindToken {
					conn.Write(c.answer(body))
				}
			})
			h := f.dst.login(copyHost)
			if got := end(h.Do(redeem(0, 0, forgedToken(), 0, 64))); got != c.want {
				t.Errorf("the copy ends with %s, want %s", got, c.want)
			}
			f.poll("no units", func() bool { // by the same link, or another one
				f.client.mu.Lock()
				defer f.client.mu.Unlock()
				l := f.client.link
				return l != nil && len(l.units) == 0 && len(l.users) == 0
			})
			f.dst.free()
		})
	}
}

// unitAlone answers a question for a token with a unit that has failed to hold anything.
func unitAlone(body []byte, sense uint32) []byte {
	q, err := parseBorrowing(body)
	if err != nil {
		return nil
	}
	e := stepEnd{call: q.call, status: byte(block.Hardware), sense: sense, unit: foundUnit{ok: true, volume: "v"}}
	return e.append(nil)
}

// refuses answers a question for a token with a sense code.
func refuses(body []byte, sense uint32) []byte {
	q, err := parseBorrowing(body)
	if err != nil {
		return nil
	}
	e := stepEnd{call: q.call, status: byte(block.Unsupported), sense: sense}
	return e.append(nil)
}

// halfLender is an array that lends whatever is asked for, gives copyOther its pieces, as zeros, and others nothing.
type halfLender struct {
	mu    sync.Mutex
	of    map[uint64]string // guarded by mu: the initiator of each unit
	asked map[string]int    // guarded by mu: pieces, by initiator
}

// pieces returns how many pieces copyHost has asked for.
func (l *halfLender) pieces() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[copyHost]
}

// serve returns what answers for a forger, with tokens of so many blocks.
func (l *halfLender) serve(blocks uint64) func(conn net.Conn, k kind, body []byte) {
	l.of, l.asked = map[uint64]string{}, map[string]int{}
	return func(conn net.Conn, k kind, body []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		switch k {
		case kindToken:
			if q, err := parseBorrowing(body); err == nil {
				l.of[q.unit] = q.who.Name
				conn.Write(lends(body, blocks, 0))
			}
		case kindPiece:
			p, err := parsePieceHead(body)
			if err != nil {
				return
			}
			if l.asked[l.of[p.unit]]++; l.of[p.unit] == copyOther {
				n := p.length * block.SectorSize
				conn.Write(append(appendData(nil, p.id, block.OK, n), make([]byte, n)...))
			}
		}
	}
}

// TestWindowLeavesRoom: an initiator whose copies wait for an array that does not read what they want leaves room for those of
// others in the window of the link, however many pieces it wants, and though it has given its copies up.
func TestWindowLeavesRoom(t *testing.T) {
	var l halfLender
	f := newForger(t, l.serve(2048))
	a, b := f.dst.login(copyHost), f.dst.login(copyOther)
	pieces := l.pieces
	const half = forgedWindow / 2 / (256 << 10)
	for range 2 {
		var all []*running
		for at := uint64(0); at < sideSectors; at += 2048 {
			c := redeem(0, 0, forgedToken(), at, 2048)
			be.PutUint32(c.CDB[6:], uint32(at)) // the list identifier
			all = append(all, a.start(c))
		}
		f.poll("pieces of the first initiator", func() bool { return pieces() >= half })
		if got := end(b.Do(redeem(1, 0, forgedToken(), 0, 2048))); got != "00" {
			t.Errorf("a copy of another initiator ends with %s", got)
		}
		a.manage(scsi.AbortTaskSet, 0)
		for _, x := range all {
			x.wait()
		}
	}
	if n := pieces(); n > half {
		t.Errorf("an initiator has %d pieces of 256 KiB in a window of %d bytes", n, forgedWindow)
	}
	f.client.Stop()
	f.dst.free()
}

func (f *forger) poll(what string, ok func() bool) {
	f.t.Helper()
	r := copyRig{t: f.t}
	r.poll(what, ok)
}
