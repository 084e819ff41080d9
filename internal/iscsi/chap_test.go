package iscsi

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestParseBinary(t *testing.T) {
	rows := []struct {
		text string
		want []byte
	}{
		{"0x0102ff", []byte{1, 2, 255}},
		{"0X1", []byte{1}},
		{"0xabc", []byte{0x0a, 0xbc}},
		{"0bAQL/", []byte{1, 2, 255}},
		{"0BAQ==", []byte{1}},
		{"", nil}, {"0x", nil}, {"0b", nil}, {"12", nil}, {"0xzz", nil}, {"0b!!", nil},
		{"0x" + strings.Repeat("00", 17), nil},
		{"0b" + strings.Repeat("AAAA", 6), nil},
	}
	for _, row := range rows {
		got, ok := parseBinary(row.text, 16)
		if ok != (row.want != nil) || ok && !bytes.Equal(got, row.want) {
			t.Errorf("%q: %x, %v", row.text, got, ok)
		}
	}
}

// An independent calculation: CHAP with the identifier 0x4d, the secret
// "s3cr3ts3cr3t" and the challenge 00 01 .. 0f, made with other implementations.
func TestCHAPVector(t *testing.T) {
	challenge := make([]byte, 16)
	for i := range challenge {
		challenge[i] = byte(i)
	}
	for algorithm, want := range map[string]string{
		chapMD5:      "0x10be86dc12ddc1bc76dc5cd7c5b98ce9",
		chapSHA256:   "0x18d72331ef61f47f135330dd0efbc3eb2c613f9ff6ef992dd23e0943d03ce3a5",
		chapSHA3_256: "0x7828cfc4da3dd0bf6a5eb35e53d82f48b832ff2822bfe4178e7d2e07e88a6a3d",
	} {
		if got := formatBinary(chapResponse(algorithm, 0x4d, []byte("s3cr3ts3cr3t"), challenge)); got != want {
			t.Errorf("algorithm %s: %s", algorithm, got)
		}
	}
}

var (
	oneWay = &CHAP{User: "joe", Secret: []byte("open sesame!")}
	mutual = &CHAP{User: "joe", Secret: []byte("open sesame!"), MutualUser: "ali", MutualSecret: []byte("forty thieves")}
)

func TestCHAP(t *testing.T) {
	rows := []struct {
		name         string
		server       *CHAP
		client       *CHAP
		skipSecurity bool
		status       uint16
	}{
		{"right", oneWay, oneWay, false, loginOK},
		{"mutual", mutual, mutual, false, loginOK},
		{"mutual is not asked for", mutual, oneWay, false, loginOK},
		{"mutual is not configured", oneWay, mutual, false, loginAuthFailed},
		{"wrong secret", oneWay, &CHAP{User: "joe", Secret: []byte("open barley!")}, false, loginAuthFailed},
		{"empty secret", oneWay, &CHAP{User: "joe"}, false, loginAuthFailed},
		{"wrong user", oneWay, &CHAP{User: "Joe", Secret: oneWay.Secret}, false, loginAuthFailed},
		{"no CHAP offered", oneWay, nil, false, loginAuthFailed},
		{"security stage skipped", oneWay, nil, true, loginAuthFailed},
		{"CHAP offered, not configured", nil, nil, false, loginOK},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Targets[0].CHAP = row.server })
			c, err := r.tryLogin(func(cfg *ClientConfig) { cfg.CHAP, cfg.SkipSecurity = row.client, row.skipSecurity })
			checkStatus(t, err, row.status)
			if c != nil {
				if res, err := c.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err != nil || res.Status != 0 {
					t.Error(res, err)
				}
			} else {
				r.withFake(func(f *fakeTarget) {
					if f.opened != 0 {
						t.Error("a nexus was opened")
					}
				})
				// The answer is out before the failure is counted.
				r.eventually("the failure is counted", func(*fakeTarget) bool { return r.errors(ErrAuth) == 1 })
			}
			for _, secret := range []string{"sesame", "thieves"} {
				if strings.Contains(r.log.String(), secret) {
					t.Error("a secret is in the log")
				}
			}
		})
	}
}

// The initiator's first choice among what both have is taken.
func TestCHAPAlgorithms(t *testing.T) {
	for _, row := range []struct{ offer, want string }{{"5", "5"}, {"7,5", "7"}, {"5,7", "5"}, {"6,8,7", "8"}, {"99,7", "7"}} {
		t.Run(row.offer, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Targets[0].CHAP = mutual })
			c := rawLogin(r)
			id := appendKey(appendKey(nil, keyInitiatorName, testInitiator), keyTargetName, testTarget)
			if _, err := c.LoginStep(stageSecurity, stageSecurity, appendKey(id, keyAuthMethod, "CHAP")); err != nil {
				t.Fatal(err)
			}
			got, err := c.LoginStep(stageSecurity, stageSecurity, appendKey(nil, keyChapA, row.offer))
			if err != nil || got[keyChapA] != row.want {
				t.Fatalf("the target chose %q, %v", got[keyChapA], err)
			}
			n, _ := parseNumber(got[keyChapI])
			challenge, _ := parseBinary(got[keyChapC], maxChapBinary)
			out := appendKey(appendKey(nil, keyChapN, mutual.User), keyChapR, formatBinary(chapResponse(row.want, byte(n), mutual.Secret, challenge)))
			if _, err := c.LoginStep(stageSecurity, stageOperational, out); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ways around CHAP that a plain client does not try.
func TestCHAPEvasion(t *testing.T) {
	id := appendKey(appendKey(nil, keyInitiatorName, testInitiator), keyTargetName, testTarget)
	ask := func(c *Client) map[string]string {
		c.LoginStep(stageSecurity, stageSecurity, appendKey(bytes.Clone(id), keyAuthMethod, "CHAP"))
		got, _ := c.LoginStep(stageSecurity, stageSecurity, appendKey(nil, keyChapA, chapMD5))
		return got
	}
	response := func(got map[string]string) []byte {
		n, _ := parseNumber(got[keyChapI])
		challenge, _ := parseBinary(got[keyChapC], maxChapBinary)
		out := appendKey(nil, keyChapN, mutual.User)
		return appendKey(out, keyChapR, formatBinary(chapResponse(chapMD5, byte(n), mutual.Secret, challenge)))
	}
	rows := []struct {
		name string
		run  func(c *Client) error
	}{
		{"transition before anything", func(c *Client) error {
			_, err := c.LoginStep(stageSecurity, stageFull, bytes.Clone(id))
			return err
		}},
		{"transition with AuthMethod", func(c *Client) error {
			_, err := c.LoginStep(stageSecurity, stageFull, appendKey(bytes.Clone(id), keyAuthMethod, "CHAP"))
			return err
		}},
		{"transition with the challenge", func(c *Client) error {
			c.LoginStep(stageSecurity, stageSecurity, appendKey(bytes.Clone(id), keyAuthMethod, "CHAP"))
			_, err := c.LoginStep(stageSecurity, stageFull, appendKey(nil, keyChapA, chapMD5))
			return err
		}},
		{"next stage after the challenge", func(c *Client) error {
			ask(c)
			_, err := c.LoginStep(stageOperational, stageFull, nil)
			return err
		}},
		{"response before a challenge", func(c *Client) error {
			c.LoginStep(stageSecurity, stageSecurity, appendKey(bytes.Clone(id), keyAuthMethod, "CHAP"))
			_, err := c.LoginStep(stageSecurity, stageFull, appendKey(appendKey(nil, keyChapN, "joe"), keyChapR, formatBinary(chapResponse(chapMD5, 0, mutual.Secret, nil))))
			return err
		}},
		{"name without response", func(c *Client) error {
			ask(c)
			_, err := c.LoginStep(stageSecurity, stageFull, appendKey(nil, keyChapN, "joe"))
			return err
		}},
		{"a second challenge", func(c *Client) error {
			ask(c)
			_, err := c.LoginStep(stageSecurity, stageSecurity, appendKey(nil, keyChapA, chapMD5))
			return err
		}},
		{"only SHA-1", func(c *Client) error {
			c.LoginStep(stageSecurity, stageSecurity, appendKey(bytes.Clone(id), keyAuthMethod, "CHAP"))
			_, err := c.LoginStep(stageSecurity, stageSecurity, appendKey(nil, keyChapA, "6"))
			return err
		}},
		{"our own challenge sent back", func(c *Client) error {
			got := ask(c)
			out := appendKey(appendKey(response(got), keyChapI, "1"), keyChapC, got[keyChapC])
			_, err := c.LoginStep(stageSecurity, stageOperational, out)
			return err
		}},
		{"oversized challenge", func(c *Client) error {
			out := appendKey(appendKey(response(ask(c)), keyChapI, "1"), keyChapC, "0x"+strings.Repeat("ab", 1025))
			_, err := c.LoginStep(stageSecurity, stageOperational, out)
			return err
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Targets[0].CHAP = mutual })
			c := rawLogin(r)
			err := row.run(c)
			if err == nil {
				// No refusal: then the answer must not have been a transition either.
				_, err = c.LoginStep(stageOperational, stageFull, nil)
			}
			var le *LoginError
			if !errors.As(err, &le) {
				t.Errorf("got %v", err)
			}
			r.withFake(func(f *fakeTarget) {
				if f.opened != 0 {
					t.Error("a nexus was opened")
				}
			})
		})
	}
}
