package link

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestSpeechless: who has a secret, of nodes or of arrays, and does not say who it is keeps no stop waiting.
func TestSpeechless(t *testing.T) {
	r := newCopyRig(t)
	r.tap.mu.Lock()
	to := r.tap.to
	r.tap.mu.Unlock()
	for _, c := range []struct{ secret, name string }{{testSecret, ""}, {copySecret, copySecretName([]byte(copySecret))}} {
		conf, err := identity([]byte(c.secret))
		if err != nil {
			t.Fatal(err)
		}
		conf.ServerName = c.name
		conn, err := tls.Dial("tcp", to, conf)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		time.Sleep(50 * time.Millisecond) // for the other end of the handshake
	}
	began := time.Now()
	if !r.server.Shutdown(context.Background()) {
		t.Error("the server has not ended")
	}
	if took := time.Since(began); took > handshakeTime/2 {
		t.Errorf("the end of the server took %v", took)
	}
	late, other := net.Pipe() // it was accepted before that
	defer other.Close()
	r.server.meet(late)
	if late.SetDeadline(time.Now()) == nil {
		t.Error("a connection that came at the end goes on")
	}
}
