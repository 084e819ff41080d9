package link

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// MinSecret is how many bytes a secret has at least. Who can reach the link can have the owner prove that it has the secret,
// and try guesses against that at home: so it is to be one that nobody guesses, such as 32 random bytes.
const MinSecret = 16

// digest tells whether two nodes say the same of something, and to nobody else what that is.
type digest [16]byte

func digestOf(secret []byte, text string) (d digest) {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("arraysim link policy\x00" + text))
	copy(d[:], m.Sum(nil))
	return d
}

// otherPolicy is what a node logs whose peer has another policy.
const otherPolicy = "link: portal.target, portal.allow or portal.chap differ between the nodes; make them the same on all nodes"

// errStranger is what the handshake ends with where the peer has another secret.
var errStranger = errors.New("link: the other node has a different secret")

// identity makes the TLS configuration of a secret, for both ends: the secret is the seed of a key pair, and each end proves
// that it has the private key by a certificate that nobody has signed but itself. So nothing of the secret travels, what
// travels is encrypted, and there are no certificates for anybody to keep.
func identity(secret []byte) (*tls.Config, error) {
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the secret of the link has %d bytes; make one of %d or more, for example with  openssl rand -hex 32", len(secret), MinSecret)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "arraysim link", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("the secret of the link: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	// The times are fixed: the clocks of nodes may be wrong, and the key ends with the secret.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("the secret of the link: %w", err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // no authority signs it: VerifyConnection compares the key
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errStranger
			}
			theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !theirs.Equal(public) {
				return errStranger
			}
			return nil
		},
	}, nil
}
