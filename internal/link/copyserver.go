package link

import (
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

// CopySecret is the secret of another array, whose copies may read from this one.
type CopySecret struct {
	Name   string // of the array, for people
	Secret []byte
}

// maxLends bounds the links of arrays that copy from this one. Each has as many as it leaves to others (block.Left).
const maxLends = 32

// heldTime is after how long an executor that takes no messages ends the links of copies from its array: what asks an array
// of the same process waits that long, too.
const heldTime = 11 * time.Second

var errHeld = errors.New("link: an I/O group of this array takes no messages")

// copySecretName is by which name a client asks the owner to prove that it has the secret of the two arrays, and not that of the
// owner's nodes. It tells no more of the secret than what is proved.
func copySecretName(secret []byte) string {
	d := digestOf(secret, "copies")
	return "copies-" + hex.EncodeToString(d[:])
}

// lending is what is kept of another array that copies from this one, linked or not.
type lending struct {
	name string
	tls  *tls.Config
	node string // guarded by Server.mu: the other end, or the last that was
	addr string // guarded by Server.mu

	stats copyStats
}

// allowCopies takes the secrets of other arrays.
func (s *Server) allowCopies(all []CopySecret) error {
	own := s.tls
	for _, p := range all {
		t, err := identity(p.Secret)
		if err != nil {
			return fmt.Errorf("array %s: %w", p.Name, err)
		}
		name := copySecretName(p.Secret)
		if name == copySecretName(s.cfg.Secret) {
			return fmt.Errorf("array %s has the secret of this array's nodes, with which it could write as any initiator; give the two arrays a secret of their own", p.Name)
		}
		for _, l := range s.lendings {
			if l.tls.ServerName == name {
				return fmt.Errorf("arrays %s and %s have the same secret; give each pair of arrays its own", l.name, p.Name)
			}
		}
		t.ServerName = name
		s.lendings = append(s.lendings, &lending{name: p.Name, tls: t})
	}
	if len(s.lendings) > 0 {
		s.tls = own.Clone()
		s.tls.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if p := s.lendingTo(h.ServerName); p != nil {
				return p.tls, nil
			}
			return own, nil
		}
	}
	return nil
}

// lendingTo finds the array of a copySecretName.
func (s *Server) lendingTo(name string) *lending {
	for _, p := range s.lendings {
		if p.tls.ServerName == name {
			return p
		}
	}
	return nil
}

// lend serves a link of another array that copies from this one, to its end.
func (s *Server) lend(p *lending, conn *tls.Conn, raw net.Conn) error {
	buf := make([]byte, maxBody)
	k, body, err := readMessage(conn, buf)
	s.know(raw)
	if err != nil {
		return err
	}
	if k != kindCopyHello {
		return broke("a message of kind %d instead of a hello", k)
	}
	h, err := parseCopyHello(body)
	var l *lendLink
	if err == nil {
		l = newLendLink(s, p, conn, raw, buf)
		err = s.enterLend(l, h.name)
	}
	if err != nil {
		conn.Write(appendRefusal(nil, err.Error())) // who is not there any more need not know
		return err
	}
	defer s.leaveLend(l)
	w := copyWelcome{array: s.cfg.Array, epoch: s.cfg.Epoch, node: s.cfg.Self.Name, units: copyUnits, pieces: copyPieces, window: copyWindow}
	if _, err := conn.Write(w.append(nil)); err != nil {
		return err
	}
	raw.SetDeadline(time.Time{})
	log := s.cfg.Log.With("array", p.name, "node", h.name, "peer", raw.RemoteAddr().String())
	log.Info("copies to another array: linked")
	if err = l.serve(); isViolation(err) {
		log.Warn("copies to another array: the link has ended", "error", err)
	} else {
		log.Info("copies to another array: the link has ended", "reason", err)
	}
	return nil
}

// enterLend notes a link.
func (s *Server) enterLend(l *lendLink, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for o := range s.lends {
		if o.to == l.to {
			own++
		}
	}
	switch {
	case s.closing:
		return ErrClosed
	case s.pausing:
		return errors.New("the array is about to move to another node; link to that one")
	case block.Left(own, len(s.lends), maxLends) < 1:
		return fmt.Errorf("%d links copy from this array, %d of them with this secret, and there are to be no more", len(s.lends), own)
	}
	s.lends[l] = true
	l.to.node, l.to.addr = node, l.raw.RemoteAddr().String()
	l.to.stats.links.Add(1)
	return nil
}

func (s *Server) leaveLend(l *lendLink) {
	s.mu.Lock()
	delete(s.lends, l)
	s.mu.Unlock()
}

// CopyPeers describes the arrays that may copy from this one.
func (s *Server) CopyPeers() (out []CopyPeer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.lendings {
		c := CopyPeer{Name: p.name, Node: p.node, Address: p.addr, Links: p.stats.links.Load(), Pieces: p.stats.pieces.Load(), Bytes: p.stats.bytes.Load()}
		for l := range s.lends {
			c.Linked = c.Linked || l.to == p
		}
		out = append(out, c)
	}
	return out
}
