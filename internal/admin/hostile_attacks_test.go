package admin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// connections: more connections than there may be, half of which say nothing and half begin to log
// in.
func (h *hostile) connections() error {
	var first net.Conn
	for i := range hostileConns + 20 {
		nc := h.dial()
		if i == 0 {
			first = nc
		}
		if i%2 == 1 {
			b := make([]byte, bhs)
			b[0], b[1] = pduLogin, 0x47 // C: more text is to come
			_, _ = nc.Write(b[:20+i%28])
		}
	}
	first.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := first.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("the first connection stays: %v", err)
	}
	return nil
}

// sessions: as many as there may be.
func (h *hostile) sessions() error {
	for range hostileSessions + 1 {
		_, status, err := h.login(h.name(), false)
		if err != nil {
			return err
		}
		if status == 0x0302 {
			return nil
		}
	}
	return errors.New("no login is refused")
}

// ownSessions: as many as one name may have.
func (h *hostile) ownSessions() error {
	for n := range hostileSessions/4 + 1 {
		_, status, err := h.login("iqn.2026-01.host:hostile", false)
		if err != nil {
			return err
		}
		if full := n == hostileSessions/4; full != (status == 0x0302) {
			return fmt.Errorf("session %d: status %04x", n, status)
		}
	}
	return nil
}

// discovery: sessions that ask for nothing. Hosts get in beside them.
func (h *hostile) discovery() error {
	first, _, err := h.login("iqn.2026-01.host:hostile", true)
	if err != nil {
		return err
	}
	for range 40 {
		if _, status, err := h.login("iqn.2026-01.host:hostile", true); err != nil || status != 0 {
			return fmt.Errorf("login: %04x, %v", status, err)
		}
	}
	if _, _, err := first.next(10 * time.Second); err != io.EOF {
		return fmt.Errorf("the first session stays: %v", err)
	}
	c, err := h.r.dial("iqn.2026-01.host:newcomer")
	if err == nil {
		c.Close()
	}
	return err
}

// window: in every session all the commands that may be in progress, and one more.
func (h *hostile) window() error {
	const depth = 128
	for i := range hostileSessions - 2 {
		s := h.session()
		for range depth + 1 {
			s.command(pduCommand, 1, lunTheirs, rwCDB(0x8A, 0, 32), 16384, 0, nil)
		}
		s.ping()
		asked := 0
		for ping := false; !ping; {
			b, _, err := s.next(10 * time.Second)
			if err != nil {
				return err
			}
			if ping = b[0] == 0x20; b[0] == pduR2T {
				asked++
			}
		}
		if i == 0 && asked != depth { // the memory does not suffice for all of all sessions
			return fmt.Errorf("%d commands of %d are in progress", asked, depth+1)
		}
	}
	return nil
}

// immediates: commands outside of the window.
func (h *hostile) immediates() error {
	for range hostileSessions - 2 {
		s := h.session()
		rejected := 0
		for range 40 {
			s.command(0x40|pduCommand, 1, lunTheirs, rwCDB(0x8A, 0, 32), 16384, 0, nil)
		}
		for rejected == 0 {
			b, _, err := s.next(10 * time.Second)
			if err != nil {
				return err
			}
			if b[0] == pduReject {
				rejected++
			}
		}
	}
	return nil
}

// fillSlow fills the slow pool's part of the write cache; writes to it wait.
func (h *hostile) fillSlow() (*raw, error) {
	s := h.session().ready(lunSlow)
	for i := range uint64(64) {
		s.command(pduCommand, 1, lunSlow, rwCDB(0x8A, 512*i, 512), segment, 0, filler[:segment])
	}
	s.ping()
	patience, read := time.Minute, false // silence says nothing before all has been read
	for answered := 0; answered < 64; {
		b, _, err := s.next(patience)
		switch {
		case err == errSilent && read:
			return s, nil
		case err != nil:
			return s, err
		case b[0] == 0x20: // of the ping
			patience, read = 500*time.Millisecond, true
		default:
			answered++
		}
	}
	return s, errors.New("the cache takes it all")
}

// cache: all of it that one pool may have.
func (h *hostile) cache() error {
	_, err := h.fillSlow()
	return err
}

// tasks: as many as a unit's task set takes. An ORDERED command that waits keeps them there.
func (h *hostile) tasks() error {
	if _, err := h.fillSlow(); err != nil {
		return err
	}
	s := h.session().ready(lunSlow)
	s.command(pduCommand, 2, lunSlow, rwCDB(0x8A, 0, 512), segment, 0, filler[:segment])
	for range hostileSessions - 4 {
		s := h.session()
		for range 128 {
			s.command(pduCommand, 1, lunSlow, make([]byte, 6), 0, 0, nil)
		}
		s.ping()
		for {
			b, _, err := s.next(10 * time.Second)
			if err != nil {
				return err
			}
			if b[0] == pduAnswer && b[3] == 0x28 {
				return nil
			}
			if b[0] == 0x20 {
				break
			}
		}
	}
	return errors.New("the task set is not full")
}

// longCommands: transfers beyond what a command may have.
func (h *hostile) longCommands() error {
	s := h.session()
	for range 100 {
		s.command(pduCommand, 1, lunTheirs, rwCDB(0x8A, 0, 0xFFFFFFFF), 1<<31, 0, nil)
		b, data, err := s.next(10 * time.Second)
		if err != nil || b[3] != 2 || data[4] != 5 || data[14] != 0x24 {
			return fmt.Errorf("it is answered with % x, %v", b, err)
		}
	}
	return nil
}

// headers: the longest commands, of which nothing comes but the header.
func (h *hostile) headers() error {
	for range hostileSessions - 2 {
		s := h.session()
		s.command(pduCommand, 1, lunTheirs, rwCDB(0x8A, 0, 131072), 64<<20, 0, nil)
		b, _, err := s.next(10 * time.Second)
		if err != nil || b[0] != pduR2T && b[3] != 0x28 {
			return fmt.Errorf("a header is answered with % x, %v", b, err)
		}
	}
	return nil
}

// memory: data that came, up to the last byte but one burst, until there is room for no more.
func (h *hostile) memory() error {
	full := 0
	for range hostileSessions - 2 {
		s := h.session()
		const length = 16 << 20
		s.command(pduCommand, 1, lunTheirs, rwCDB(0x8A, 0, length/512), length, 0, filler[:segment])
		for sent := segment; sent < length-2<<20 && full < 8; {
			b, _, err := s.next(10 * time.Second)
			if err != nil {
				return err
			}
			if b[0] == pduAnswer {
				full++
				break
			}
			if b[0] == pduR2T {
				sent += s.data(b)
			}
		}
	}
	if full == 0 {
		return errors.New("there is always room")
	}
	return nil
}

// data sends what an R2T asks for.
func (s *raw) data(r2t []byte) int {
	be := binary.BigEndian
	off, n := int(be.Uint32(r2t[40:])), int(be.Uint32(r2t[44:]))
	for at := 0; at < n; at += segment {
		k, flags := min(segment, n-at), byte(0)
		if at+k == n {
			flags = 0x80
		}
		s.send(pduData, flags, 0, func(b []byte) {
			copy(b[16:], r2t[16:24])
			be.PutUint32(b[36:], uint32(at/segment))
			be.PutUint32(b[40:], uint32(off+at))
		}, filler[:k])
	}
	return n
}

// unread: answers that nobody fetches, until the portal listens no more.
func (h *hostile) unread() error {
	for range 8 {
		s := h.session().ready(lunTheirs)
		for range 128 {
			s.command(pduCommand, 1, lunTheirs, rwCDB(0x88, 0, 2048), 0, 1<<20, nil)
		}
		s.nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		b := make([]byte, bhs+segment)
		b[0], b[1], b[5] = pduNop, 0x80, segment>>16
		var err error
		for i := 0; err == nil && i < 1000; i++ {
			_, err = s.nc.Write(b)
		}
		if err == nil {
			return errors.New("the portal takes pings without end")
		}
	}
	return nil
}

// names: more hosts than are counted by name.
func (h *hostile) names() error {
	for i := range 1100 {
		s, status, err := h.login(fmt.Sprintf("iqn.2026-01.host:n%d", i), false)
		if err != nil || status != 0 {
			return fmt.Errorf("login %d: %04x, %v", i, status, err)
		}
		s.ready(lunTheirs)
		if len(h.conns) > 20 {
			h.release()
		}
	}
	return nil
}

// requests: changes by the HTTP API, with guessed tokens, until it listens no more. It forgives one guess a second, which a
// slow machine does not take longer for; 100 reads it may.
func (h *hostile) requests() error {
	for range 500 {
		nc, err := net.Dial("tcp", h.r.d.metricsAddr.String())
		if err != nil {
			return err
		}
		nc.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(nc, "DELETE /api/v1/volumes/mine HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer guess\r\nConnection: close\r\n\r\n", h.r.d.metricsAddr)
		var status int
		_, err = fmt.Fscanf(nc, "HTTP/1.1 %d", &status)
		nc.Close()
		if err != nil {
			return err
		}
		if status == 429 {
			return nil
		}
	}
	return errors.New("no request is refused")
}

// bodies: requests whose head, or whose body, does not come, on more connections than there may be.
func (h *hostile) bodies() error {
	for n := range 300 {
		nc, err := net.Dial("tcp", h.r.d.metricsAddr.String())
		if err != nil {
			return err
		}
		h.conns = append(h.conns, nc)
		head := fmt.Sprintf("POST /api/v1/volumes HTTP/1.1\r\nHost: %s\r\nContent-Length: 100\r\n", h.r.d.metricsAddr)
		if n%2 == 0 {
			head += "\r\n"
		}
		_, _ = nc.Write([]byte(head)) // it may be closed already
	}
	closed := h.conns[1] // whose head is not complete: only for room it ends now
	closed.SetReadDeadline(time.Now().Add(8 * time.Second))
	if _, err := closed.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("no connection is closed for others")
	}
	return nil
}

// limitsOf returns the first cells of the table of docs/limits.md.
func limitsOf(t *testing.T) (rows []string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.Contains(cells[1], "---") || strings.TrimSpace(cells[1]) == "what" {
			continue
		}
		rows = append(rows, strings.TrimSpace(cells[1]))
	}
	if len(rows) < 20 {
		t.Fatalf("docs/limits.md has %d rows: they are not found", len(rows))
	}
	return rows
}
