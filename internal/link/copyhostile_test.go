package link

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
)

// thief has the secret of two arrays, and sends what it likes to the one that is copied from.
func (r *copyRig) thief() *peer {
	r.t.Helper()
	r.tap.mu.Lock()
	to := r.tap.to
	r.tap.mu.Unlock()
	p, k, body := greetCopies(r.t, to, copySecret)
	if k != kindCopyWelcome {
		r.t.Fatalf("no welcome: kind %d", k)
	}
	if _, err := parseCopyWelcome(body); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// greetCopies says hello as an array that copies, and returns the answer.
func greetCopies(t testing.TB, to, secret string) (*peer, kind, []byte) {
	t.Helper()
	conf, err := identity([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	conf.ServerName = copySecretName([]byte(secret))
	raw, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(patience))
	p := &peer{t: t.(*testing.T), c: tls.Client(raw, conf)}
	hello := copyHello{name: "thief"}
	p.send(hello.append(nil))
	k, body, err := readMessage(p.c, make([]byte, maxBody))
	if err != nil {
		t.Fatal(err)
	}
	return p, k, body
}

// wants looks for volume 0 of the source as unit 1.
func (r *copyRig) wants(call uint32, first uint64, units int) []byte {
	id := r.src.names(0)[8:24]
	f := finding{call: call, first: first, who: scsi.CopyInitiator{Name: copyHost, Port: copyHost + ",i,0x00023d000001"}}
	for range units {
		f.want = append(f.want, scsi.CopyDesignator{CodeSet: 1, Kind: 3, ID: id})
	}
	return f.append(nil)
}

// TestHostileCopies: an array that has the secret and breaks the protocol loses its link, and what was lent to it comes back.
func TestHostileCopies(t *testing.T) {
	r := newCopyRig(t)
	r.src.write(0, 0, stamps(1, 1<<20))
	r.src.login(copyHost)
	held := func(b []byte) []byte {
		b = append(b, r.wants(1, 1, 1)...)
		return b
	}
	hold := func(call uint32, start, n uint64) []byte {
		s := step{call: call, unit: 1, r: block.Range{Start: start, Count: n}}
		return s.append(nil, kindHold)
	}
	piece := func(id uint32, off uint64, n uint32) []byte {
		h := pieceHead{id: id, unit: 1, off: off, length: n}
		return h.append(nil)
	}
	var many, steps []byte
	for i := range copyUnits/copyWants + 1 {
		many = append(many, r.wants(uint32(i), uint64(1+i*copyWants), copyWants)...)
	}
	for i := range uint32(3 * copyPieces) {
		steps = append(steps, piece(i, 0, copyPieceLen/512)...)
	}
	for _, c := range []struct {
		name string
		// before is answered by so many messages, ping apart, and b ends the link.
		before  []byte
		answers int
		b       []byte
	}{
		{"an unknown kind", nil, 0, appendLength(appendHead(nil, 200), 0)},
		{"a kind of nodes", nil, 0, appendLength(appendHead(nil, kindReady), 0)},
		{"a long message", nil, 0, []byte{0, 1, 0, 0, byte(kindFind)}},
		{"a hold of nothing lent", nil, 0, hold(1, 0, 8)},
		{"a piece of nothing lent", nil, 0, piece(1, 0, 8)},
		{"unit 0", nil, 0, r.wants(1, 0, 1)},
		{"no units", nil, 0, r.wants(1, 1, 0)},
		{"a number twice", held(nil), 1, r.wants(2, 1, 1)},
		{"numbers that overflow", nil, 0, r.wants(1, 1<<64-1, 3)},
		{"too many units", nil, 0, many},
		{"a piece of no length", held(nil), 1, piece(1, 0, 0)},
		{"a piece that is too long", held(nil), 1, piece(1, 0, copyPieceLen/512+1)},
		{"too many pieces", held(nil), 1, append(hold(2, 0, 2048), steps...)},
		{"a body that is too short", held(nil), 1, appendLength(append(appendHead(nil, kindLeave), 0, 0), 0)},
		{"a release of another unit", held(nil), 1, appendUnit(nil, kindRelease, 9, 0, 0)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := r.thief()
			p.t = t
			p.send(c.before)
			buf := make([]byte, maxBody)
			for n := 0; n < c.answers; {
				k, _, err := readMessage(p.c, buf)
				if err != nil {
					t.Fatal(err)
				}
				if k != kindPing {
					n++
				}
			}
			p.c.Write(c.b) // which the end may cut short
			p.closed()
		})
	}
	r.poll("the end of all links but one", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.lends) == 1
	})
	r.src.free()
	h := r.dst.login(copyHost)
	if got := end(h.Do(copies(0, r.src.names(0), r.dst.names(0), 8, 0, 0))); got != "00" {
		t.Errorf("a copy of the other array: %s", got)
	}
}

// TestOddCopies: what no copy asks, but the protocol allows, gets an answer and does no harm: a hold beside a hold, beyond the
// unit, a piece beyond what is held, of nothing held.
func TestOddCopies(t *testing.T) {
	r := newCopyRig(t)
	r.src.write(0, 0, stamps(1, 1<<20))
	r.src.login(copyHost)
	p := r.thief()
	next := func(want kind) []byte {
		t.Helper()
		for {
			k, body, err := readMessage(p.c, make([]byte, maxBody))
			switch {
			case err != nil:
				t.Fatal(err)
			case k == want:
				return body
			case k != kindPing:
				t.Fatalf("a message of kind %d, want %d", k, want)
			}
		}
	}
	ask := func(k kind, start, n uint64) stepEnd {
		t.Helper()
		s := step{call: 7, unit: 1, r: block.Range{Start: start, Count: n}}
		p.send(s.append(nil, k))
		if k == kindHold && start == 0 && n == 16 {
			next(kindRuns)
		}
		e, err := parseStepEnd(next(kindAnswer))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	piece := func(off uint64, n uint32) block.Status {
		t.Helper()
		h := pieceHead{id: 3, unit: 1, off: off, length: n}
		p.send(h.append(nil))
		_, s, bytes, err := parseData(next(kindData))
		if err != nil {
			t.Fatal(err)
		}
		if s == block.OK {
			b := make([]byte, bytes)
			if _, err := readFull(p.c, b); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	p.send(r.wants(1, 1, 1))
	next(kindFound)
	if s := piece(0, 8); s == block.OK {
		t.Error("a piece of nothing held is read")
	}
	for _, x := range [][2]uint64{{sideSectors - 1, 2}, {1<<64 - 1, 2}, {0, 1<<64 - 1}, {0, 0}} {
		if e := ask(kindHold, x[0], x[1]); e.held || e.status == byte(block.OK) {
			t.Errorf("a hold of %d sectors from %d on: %+v", x[1], x[0], e)
		}
	}
	if e := ask(kindHold, 0, 16); !e.held || e.sectors != 16 {
		t.Errorf("a hold: %+v", e)
	}
	if e := ask(kindHold, 8, 8); e.held {
		t.Errorf("a hold beside a hold: %+v", e)
	}
	for _, c := range []struct {
		off  uint64
		n    uint32
		want block.Status
	}{{0, 16, block.OK}, {8, 9, block.OutOfRange}, {1<<64 - 1, 8, block.OutOfRange}} {
		if s := piece(c.off, c.n); s != c.want {
			t.Errorf("a piece of %d sectors from %d on: %v, want %v", c.n, c.off, s, c.want)
		}
	}
	p.send(appendUnit(nil, kindRelease, 1, 0, 0))
	hold, check := step{call: 8, unit: 1, r: block.Range{Count: 16}}, step{call: 9, unit: 1, r: block.Range{Count: 16}}
	p.send(check.append(hold.append(nil, kindHold), kindCheck)) // a check beside a hold that is under way, or has just ended
	var ends []stepEnd
	for runs := 0; len(ends) < 2; {
		k, body, err := readMessage(p.c, make([]byte, maxBody))
		switch {
		case err != nil:
			t.Fatal(err)
		case k == kindRuns:
			runs++
		case k == kindAnswer:
			e, err := parseStepEnd(body)
			if err != nil {
				t.Fatal(err)
			}
			if e.call == 8 && runs != 1 {
				t.Errorf("%d messages of runs before the answer to a hold", runs)
			}
			ends = append(ends, e)
		case k != kindPing:
			t.Fatalf("a message of kind %d", k)
		}
	}
	slices.SortFunc(ends, func(a, b stepEnd) int { return cmp.Compare(a.call, b.call) })
	if e := ends[0]; e.call != 8 || !e.held {
		t.Errorf("a hold with a check behind it: %+v", e)
	}
	if e := ends[1]; e.call != 9 || e.status != byte(block.OK) {
		t.Errorf("a check behind a hold: %+v", e)
	}
	p.send(appendUnit(nil, kindDescribe, 1, 1<<63, 0))
	p.send(appendUnit(nil, kindCount, 1, 1<<40, 1<<63))
	p.send(appendUnit(nil, kindEndToken, 1, 0, 0))
	p.send(appendUnit(nil, kindPart, 1, 0, 0))
	if e := ask(kindCheck, 0, 1); e.status == byte(block.OK) {
		t.Errorf("a check of a unit that has no part any more: %+v", e)
	}
	p.c.Close()
	r.src.free()
}

// TestUnreadCopies: answers that an array does not read are kept up to their bound, and none behind that.
func TestUnreadCopies(t *testing.T) {
	r := newCopyRig(t)
	a, b := net.Pipe()
	defer b.Close()
	l := newLendLink(r.server, r.server.lendings[0], a, a, nil)
	const n = 2 << 20
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 2 * copyOut / n {
		l.put(make([]byte, n), nil)
	}
	if l.queued > copyOut+n {
		t.Errorf("%d bytes wait for an array that does not read, the bound is %d", l.queued, copyOut)
	}
	if _, err := a.Write(nil); err == nil {
		t.Error("the link goes on")
	}
}

// TestHeldCopies: an array that sends more than an I/O group can take, which takes no messages, has its link end, and its place
// among the links is free.
func TestHeldCopies(t *testing.T) {
	r := newCopyRig(t)
	r.src.login(copyHost)
	p := r.thief()
	p.send(r.wants(1, 1, 1))
	for {
		if k, _, err := readMessage(p.c, make([]byte, maxBody)); err != nil {
			t.Fatal(err)
		} else if k == kindFound {
			break
		}
	}
	links := func() int {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.lends)
	}
	if n := links(); n != 2 {
		t.Fatalf("%d links", n)
	}
	r.src.exec.Lock()
	defer r.src.exec.Unlock()
	for range 2 * copyPosts {
		p.send(appendUnit(nil, kindDescribe, 1, 1, 0))
	}
	p.c.Close()
	r.poll("the end of the link", func() bool { return links() == 1 })
}

func readFull(c net.Conn, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = c.Read(b[n:])
		n += k
	}
	return n, err
}

// TestCopySecrets: who has the nodes' secret, or none, gets nothing as an array, and the other way round.
func TestCopySecrets(t *testing.T) {
	r := newCopyRig(t)
	r.tap.mu.Lock()
	to := r.tap.to
	r.tap.mu.Unlock()
	for _, c := range []struct{ secret, name string }{{testSecret, copySecret}, {copySecret, testSecret}, {copySecret, ""}, {"another secret of thirty two bytes", "another secret of thirty two bytes"}} {
		conf, err := identity([]byte(c.secret))
		if err != nil {
			t.Fatal(err)
		}
		if c.name != "" {
			conf.ServerName = copySecretName([]byte(c.name))
		}
		conn, err := tls.Dial("tcp", to, conf)
		if err == nil {
			conn.SetDeadline(time.Now().Add(patience))
			hello := copyHello{name: "thief"}
			conn.Write(hello.append(nil))
			var k kind
			k, _, err = readMessage(conn, make([]byte, maxBody))
			if err == nil && k == kindCopyWelcome {
				t.Errorf("secret %q for %q is welcome", c.secret, c.name)
			}
			conn.Close()
		}
	}
	if _, err := NewServer(ServerConfig{Self: Node{ID: 1, Name: "a", Ports: 1}, Targets: []*scsi.Target{r.src.target}, Secret: []byte(testSecret),
		Copies: []CopySecret{{Name: "b", Secret: []byte(testSecret)}}}); err == nil {
		t.Error("an array has the secret of nodes, and may write as any initiator")
	}
}

// FuzzCopyMessages: no bytes of a peer panic, and what is parsed and is whole is the same again.
func FuzzCopyMessages(f *testing.F) {
	who := scsi.CopyInitiator{Name: "a", Port: "b"}
	for _, b := range [][]byte{
		(&copyHello{name: "x"}).append(nil), (&copyWelcome{array: "x", node: "y", units: 1, pieces: 1, window: copyPieceLen}).append(nil),
		(&finding{call: 1, first: 1, who: who, want: []scsi.CopyDesignator{{CodeSet: 1, Kind: 3, ID: []byte{1, 2}}}}).append(nil),
		appendFound(nil, 1, []foundUnit{{ok: true, shift: 3, volume: "v"}}), (&borrowing{call: 1, unit: 2, who: who}).append(nil),
		(&step{call: 1, unit: 2, r: block.Range{Start: 3, Count: 4}}).append(nil, kindHold), (&stepEnd{call: 1, held: true, sectors: 9}).append(nil),
		(&pieceHead{id: 1, unit: 2, off: 3, length: 4}).append(nil), appendData(nil, 1, block.OK, 512), appendUnit(nil, kindEnded, 1, 2, 3),
		appendLength(binary.AppendUvarint(be.AppendUint32(appendHead(nil, kindRuns), 1), 8<<2|3), 0),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, body, err := readMessage(bytes.NewReader(b), make([]byte, maxBody))
		if err != nil {
			return
		}
		b = b[:headLen+len(body)]
		again := func(err error, c []byte) {
			if err == nil && !bytes.Equal(b, c) {
				t.Errorf("%x becomes %x", b, c)
			}
		}
		switch k {
		case kindCopyHello:
			h, err := parseCopyHello(body)
			if err == nil && h.name == printable([]byte(h.name)) && len(h.append(nil)) == len(b) {
				again(nil, h.append(nil))
			}
		case kindCopyWelcome:
			parseCopyWelcome(body)
		case kindFind:
			m, err := parseFinding(body)
			again(err, m.append(nil))
		case kindToken:
			m, err := parseBorrowing(body)
			again(err, m.append(nil))
		case kindCheck, kindHold:
			m, err := parseStep(k, body)
			again(err, m.append(nil, k))
		case kindPiece:
			m, err := parsePieceHead(body)
			again(err, m.append(nil))
		case kindFound:
			parseFound(body)
		case kindAnswer:
			parseStepEnd(body)
		case kindData:
			parseData(body)
		case kindEnded:
			id, why, err := parseEnded(body)
			if why.Sense == 0 { // which the other statuses have none of
				break
			}
			again(err, appendUnit(nil, kindEnded, id, uint64(why.Status), uint64(why.Sense)))
		case kindRuns:
			_, runs, _ := parseRuns(body, nil, copyRuns)
			var at uint64
			for _, x := range runs {
				if x.Start != at || x.Count == 0 {
					t.Errorf("runs %v", runs)
				}
				at = x.End()
			}
		default:
			parseUnit(k, body)
		}
	})
}
