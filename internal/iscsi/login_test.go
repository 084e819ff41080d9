package iscsi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/block"
)

func TestNegotiation(t *testing.T) {
	limits := DefaultLimits()
	rows := []struct {
		key, value string
		want       string // empty: no answer
		discovery  string
	}{
		{keyHeaderDigest, "None", "None", "None"},
		{keyHeaderDigest, "CRC32C", "CRC32C", "CRC32C"},
		{keyHeaderDigest, "CRC32C,None", "CRC32C", "CRC32C"},
		{keyHeaderDigest, "None,CRC32C", "None", "None"},
		{keyDataDigest, "SHA,CRC32C,None", "CRC32C", "CRC32C"},
		{keyDataDigest, "SHA", valReject, valReject},
		{keyDataDigest, "crc32c", valReject, valReject},
		{keyMaxConnections, "8", "1", valIrrelevant},
		{keyMaxConnections, "0", valReject, valReject},
		{keyInitialR2T, "Yes", "Yes", valIrrelevant},
		{keyInitialR2T, "No", "No", valIrrelevant},
		{keyInitialR2T, "no", valReject, valReject},
		{keyImmediateData, "Yes", "Yes", valIrrelevant},
		{keyImmediateData, "No", "No", valIrrelevant},
		{keyMaxRecvSegment, "8192", "", ""},
		{keyMaxRecvSegment, "0x40000", "", ""},
		{keyMaxBurst, "16776192", "1048576", valIrrelevant},
		{keyMaxBurst, "4096", "4096", valIrrelevant},
		{keyMaxBurst, "511", valReject, valReject},
		{keyMaxBurst, "16777216", valReject, valReject},
		{keyMaxBurst, "-5", valReject, valReject},
		{keyFirstBurst, "262144", "262144", valIrrelevant},
		{keyFirstBurst, "0x10000", "65536", valIrrelevant},
		{keyFirstBurst, "1048576", "262144", valIrrelevant},
		{keyTime2Wait, "5", "5", "5"},
		{keyTime2Retain, "20", "0", "0"},
		{keyMaxR2T, "1", "1", valIrrelevant},
		{keyMaxR2T, "65535", "8", valIrrelevant},
		{keyPDUInOrder, "No", "Yes", valIrrelevant},
		{keySeqInOrder, "No", "Yes", valIrrelevant},
		{keyRecoveryLevel, "2", "0", "0"},
		{keyRecoveryLevel, "3", valReject, valReject},
		{keyTaskReporting, "FastAbort,RFC3720", "RFC3720", "RFC3720"},
		{keyTaskReporting, "FastAbort", valReject, valReject},
		{keyProtocolLevel, "2", "1", "1"},
		{"IFMarker", "No", "No", "No"},
		{"OFMarkInt", "2048~8192", valReject, valReject},
		{"X-com.example.key", "1", valNotUnderstood, valNotUnderstood},
		{"NoSuchKey", "1", valNotUnderstood, valNotUnderstood},
		{"X-com.example.key", valNotUnderstood, "", ""},
	}
	for _, row := range rows {
		for _, discovery := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s=%s discovery=%v", row.key, row.value, discovery), func(t *testing.T) {
				n := negotiator{limits: &limits, p: defaultParams(), discovery: discovery}
				want := row.want
				if discovery {
					want = row.discovery
				}
				got, silent, err := n.answer(row.key, row.value)
				if err != nil || silent != (want == "") || got != want {
					t.Errorf("got %q, silent %v, %v, want %q", got, silent, err, want)
				}
				if _, _, err := n.answer(row.key, row.value); err == nil {
					t.Error("the key was taken twice")
				}
			})
		}
	}
	for _, bad := range []string{"", "511", "16777216", "abc", "0x", "1 "} {
		n := negotiator{limits: &limits, p: defaultParams()}
		if _, _, err := n.answer(keyMaxRecvSegment, bad); err == nil {
			t.Errorf("MaxRecvDataSegmentLength=%q was taken", bad)
		}
	}
}

func TestParseText(t *testing.T) {
	rows := []struct {
		name, text string
		want       []pair
		ok         bool
	}{
		{"nothing", "", nil, true},
		{"two keys", "A=1\x00B=2\x00", []pair{{"A", "1"}, {"B", "2"}}, true},
		{"empty value", "A=\x00", []pair{{"A", ""}}, true},
		{"value with =", "A=b=c\x00", []pair{{"A", "b=c"}}, true},
		{"padding counted in", "A=1\x00\x00\x00", []pair{{"A", "1"}}, true},
		{"not terminated", "A=1", nil, false},
		{"no =", "A\x00", nil, false},
		{"no key", "=1\x00", nil, false},
		{"space in a key", "A B=1\x00", nil, false},
		{"long key", strings.Repeat("k", 64) + "=1\x00", nil, false},
		{"long value", "A=" + strings.Repeat("v", maxValueLen+1) + "\x00", nil, false},
		{"many keys", strings.Repeat("A=1\x00", maxKeys+1), nil, false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseText([]byte(row.text))
			if (err == nil) != row.ok || fmt.Sprint(got) != fmt.Sprint(row.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

func checkStatus(t *testing.T, err error, want uint16) {
	t.Helper()
	var le *LoginError
	switch {
	case want == loginOK && err != nil:
		t.Errorf("login: %v", err)
	case want != loginOK && (!errors.As(err, &le) || le.Status != want):
		t.Errorf("login: %v, want status %04x", err, want)
	}
}

// rawLogin is a client for logins that go their own ways.
func rawLogin(r *rig) *Client {
	nc := r.dial()
	c := &Client{CmdSN: 1, nc: nc, p: defaultParams(), maxSend: 8192, Params: make(map[string]string)}
	c.cfg.ISID = [6]byte{0x80, 1, 2, 3, 4, 5}
	c.r = bufio.NewReader(nc)
	return c
}

// LoginStep sends one login request and takes the answer, which may leave the stage as it is; T is set when next is
// another stage.
func (c *Client) LoginStep(stage, next byte, text []byte) (map[string]string, error) {
	_, data, err := c.loginPDU(stage, next, text)
	if err != nil {
		return nil, err
	}
	return c.answers(data)
}

func TestLoginStatus(t *testing.T) {
	id := func(kv ...string) (b []byte) {
		for i := 0; i < len(kv); i += 2 {
			b = appendKey(b, kv[i], kv[i+1])
		}
		return b
	}
	good := id(keyInitiatorName, testInitiator, keyTargetName, testTarget)
	rows := []struct {
		name        string
		stage, next byte
		text        []byte
		status      uint16
	}{
		{"straight to full feature phase", stageOperational, stageFull, good, loginOK},
		{"no names", stageOperational, stageFull, nil, loginMissing},
		{"no target", stageOperational, stageFull, id(keyInitiatorName, testInitiator), loginMissing},
		{"bad name", stageOperational, stageFull, id(keyInitiatorName, "host", keyTargetName, testTarget), loginInitiatorError},
		{"unknown target", stageOperational, stageFull, id(keyInitiatorName, testInitiator, keyTargetName, testTarget+"x"), loginNotFound},
		{"name in capitals", stageOperational, stageFull, id(keyInitiatorName, testInitiator, keyTargetName, strings.ToUpper(testTarget)), loginOK},
		{"not allowed", stageOperational, stageFull, id(keyInitiatorName, testInitiator+"2", keyTargetName, testTarget), loginForbidden},
		{"session type", stageOperational, stageFull, append(bytes.Clone(good), id(keySessionType, "Other")...), loginSessionType},
		{"key twice", stageOperational, stageFull, append(bytes.Clone(good), id(keyMaxR2T, "1", keyMaxR2T, "1")...), loginInitiatorError},
		{"backwards", stageOperational, stageSecurity, good, loginInitiatorError},
		{"stage 2", 2, stageFull, good, loginInitiatorError},
		{"to stage 2", stageOperational, 2, good, loginInitiatorError},
		{"malformed text", stageOperational, stageFull, append(bytes.Clone(good), 'x'), loginInitiatorError},
		{"CHAP key unasked", stageSecurity, stageFull, append(bytes.Clone(good), id(keyChapA, "5")...), loginInitiatorError},
		{"AuthMethod too late", stageOperational, stageFull, append(bytes.Clone(good), id(keyAuthMethod, valNone)...), loginInitiatorError},
		{"no common method", stageSecurity, stageFull, append(bytes.Clone(good), id(keyAuthMethod, "KRB5")...), loginAuthFailed},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) { cfg.Targets[0].AllowedInitiators = []string{strings.ToUpper(testInitiator)} })
			_, err := rawLogin(r).LoginStep(row.stage, row.next, row.text)
			checkStatus(t, err, row.status)
		})
	}
	t.Run("version", func(t *testing.T) {
		r := newRig(t, nil)
		c := rawLogin(r)
		hdr := [bhsLen]byte{0: opLogin | immediateBit, 1: 0x87, offVersionMax: 1, offVersionMin: 1}
		c.Send(hdr, nil, good)
		pdu, err := c.Receive()
		if err != nil || bhs(pdu.Header[:]).u16(offStatusClass) != loginBadVersion {
			t.Errorf("%v %v", pdu, err)
		}
	})
	t.Run("TSIH of nobody", func(t *testing.T) {
		r := newRig(t, nil)
		c := rawLogin(r)
		hdr := [bhsLen]byte{0: opLogin | immediateBit, 1: 0x87, offTSIH: 9}
		c.Send(hdr, nil, good)
		pdu, err := c.Receive()
		if err != nil || bhs(pdu.Header[:]).u16(offStatusClass) != loginNoSession {
			t.Errorf("%v %v", pdu, err)
		}
	})
	t.Run("TSIH of a session", func(t *testing.T) {
		r := newRig(t, nil)
		first := rawLogin(r)
		if _, err := first.LoginStep(stageOperational, stageFull, good); err != nil {
			t.Fatal(err)
		}
		c := rawLogin(r)
		hdr := [bhsLen]byte{0: opLogin | immediateBit, 1: 0x87}
		copy(hdr[offISID:], first.cfg.ISID[:])
		bhs(hdr[:]).put16(offTSIH, first.tsih)
		c.Send(hdr, nil, good)
		pdu, err := c.Receive()
		if err != nil || bhs(pdu.Header[:]).u16(offStatusClass) != loginTooManyConns {
			t.Errorf("%v %v", pdu, err)
		}
	})
}

// Text may be spread over requests with the C bit, cut anywhere, and so may ours.
func TestLoginText(t *testing.T) {
	r := newRig(t, nil)
	c := rawLogin(r)
	text := appendKey(appendKey(nil, keyInitiatorName, testInitiator), keyTargetName, testTarget)
	for i := range 100 {
		text = appendKey(text, fmt.Sprintf("X-com.example.%049d", i), "1")
	}
	send := func(flags byte, data []byte) *PDU {
		hdr := [bhsLen]byte{0: opLogin | immediateBit, 1: flags}
		c.Send(hdr, nil, data)
		pdu, err := c.Receive()
		if err != nil || bhs(pdu.Header[:]).u16(offStatusClass) != loginOK {
			t.Fatal(pdu, err)
		}
		return pdu
	}
	for len(text) > 1500 {
		if pdu := send(stageOperational<<2|flagContinue, text[:1500]); len(pdu.Data) > 0 || pdu.Header[offFlags] != stageOperational<<2 {
			t.Fatalf("answer to an unfinished text: %x", pdu.Header)
		}
		text = text[1500:]
	}
	var got []byte
	pdu := send(stageOperational<<2|flagFinal|stageFull, text)
	for pdu.Header[offFlags]&flagContinue != 0 {
		got = append(got, pdu.Data...)
		pdu = send(stageOperational<<2|flagFinal|stageFull, nil)
	}
	got = append(got, pdu.Data...)
	if pdu.Header[offFlags] != flagFinal|stageOperational<<2|stageFull {
		t.Errorf("flags of the last answer: %#x", pdu.Header[offFlags])
	}
	if n := strings.Count(string(got), "=NotUnderstood\x00"); n != 100 {
		t.Errorf("%d of 100 keys are not understood", n)
	}
	if !strings.Contains(string(got), "TargetPortalGroupTag=1\x00") || !strings.Contains(string(got), "MaxRecvDataSegmentLength=262144\x00") || !strings.Contains(string(got), "TargetAlias=ram\x00") {
		t.Error("declarations are missing")
	}
}

func TestLoginViolations(t *testing.T) {
	login := [bhsLen]byte{0: opLogin | immediateBit, 1: stageOperational << 2}
	long := login
	bhs(long[:]).setDataLen(loginSegment + 1)
	rows := []struct {
		name string
		send []byte
		kind ErrorKind
		late bool // it ends because nothing more comes
	}{
		{"a command first", make([]byte, bhsLen), ErrOpcode, false},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: localhost:3260\r\nUser-Agent: nobody\r\n\r\n"), ErrOpcode, false},
		{"too much data", long[:], ErrLogin, false},
		{"nothing", nil, ErrLogin, true},
		{"half a header", login[:20], ErrLogin, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t, func(cfg *Config) {
				if cfg.Limits.LoginTimeout = patience; row.late {
					cfg.Limits.LoginTimeout = 150 * time.Millisecond
				}
			})
			nc := r.dial()
			nc.Write(row.send)
			if b, err := io.ReadAll(nc); len(b) > 0 {
				t.Errorf("answered %x, %v", b, err)
			}
			r.eventually("the error is counted", func(*fakeTarget) bool { return r.errors(row.kind) == 1 })
		})
	}
}

func TestDiscovery(t *testing.T) {
	const second, hidden, closed = "iqn.2026-01.example.test:second", "iqn.2026-01.example.test:hidden", "iqn.2026-01.example.test:closed"
	r := newRig(t, func(cfg *Config) {
		unseen := newFake(cfg.Targets[0].Handler.Exec(), 0)
		unseen.hidden = true
		cfg.Targets = append(cfg.Targets,
			TargetConfig{Name: second, Handler: newFake(cfg.Targets[0].Handler.Exec(), 0)},
			TargetConfig{Name: hidden, Handler: unseen},
			TargetConfig{Name: closed, Handler: newFake(cfg.Targets[0].Handler.Exec(), 0), AllowedInitiators: []string{"iqn.2026-01.example.test:other"}})
	})
	names := func(c *Client, value string) string {
		pairs, err := c.Text(appendKey(nil, keySendTargets, value))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, kv := range pairs {
			switch {
			case kv.key == keyTargetAddress && kv.value != r.addr+",1":
				t.Errorf("address %q, want %s,1", kv.value, r.addr)
			case kv.key == keySendTargets:
				out = append(out, kv.value)
			case kv.key == keyTargetName:
				out = append(out, kv.value[strings.LastIndexByte(kv.value, ':')+1:])
			}
		}
		return strings.Join(out, " ")
	}
	discovery := r.login(func(cfg *ClientConfig) { cfg.Target = "" })
	normal := r.login(nil)
	for _, row := range []struct {
		name  string
		c     *Client
		value string
		want  string
	}{
		{"discovery", discovery, "All", "disk second"},
		{"discovery, again", discovery, "All", "disk second"},
		{"discovery, one", discovery, second, "second"},
		{"discovery, not visible", discovery, hidden, ""},
		{"discovery, not allowed", discovery, closed, ""},
		{"discovery, unknown", discovery, "iqn.2026-01.example.test:none", ""},
		{"discovery, empty", discovery, "", valReject},
		{"discovery, not a name", discovery, "Alle", valReject},
		{"normal", normal, "", "disk"},
		{"normal, by name", normal, testTarget, "disk"},
		{"normal, another", normal, second, ""},
		{"normal, all", normal, "All", valReject},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := names(row.c, row.value); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	if pairs, err := normal.Text([]byte("Foo=1\x00MaxBurstLength=512\x00MaxRecvDataSegmentLength=1024\x00")); err != nil || fmt.Sprint(pairs) != "[{Foo NotUnderstood} {MaxBurstLength Reject}]" {
		t.Errorf("%v, %v", pairs, err)
	}
	normal.p.maxXmit = 1024
	if res, err := normal.Command(0, cdb10(opRead10, 0, 8), nil, 4096); err != nil || res.Status != 0 {
		t.Error(res, err)
	}
	// A discovery session takes no commands.
	if _, err := discovery.Command(0, cdb10(opTestUnitReady, 0, 0), nil, 0); err == nil {
		t.Error("a discovery session ran a command")
	}
}

// A long answer comes in pieces.
func TestLongDiscovery(t *testing.T) {
	r := newRig(t, func(cfg *Config) {
		for i := range 60 {
			cfg.Targets = append(cfg.Targets, TargetConfig{Name: fmt.Sprintf("%s-%d", testTarget, i), Handler: newFake(cfg.Targets[0].Handler.Exec(), 0)})
		}
	})
	c := r.login(func(cfg *ClientConfig) { cfg.Target = ""; cfg.Keys = map[string]string{keyMaxRecvSegment: "512"} })
	pairs, err := c.Text([]byte("SendTargets=All\x00"))
	if err != nil || len(pairs) != 122 {
		t.Errorf("%d keys, %v", len(pairs), err)
	}
}

func TestConfigErrors(t *testing.T) {
	exec := block.NewLive()
	defer exec.Stop()
	f := newFake(exec, 0)
	rows := []struct {
		name string
		cfg  Config
	}{
		{"bad name", Config{Targets: []TargetConfig{{Name: "disk", Handler: f}}}},
		{"no target", Config{Targets: []TargetConfig{{Name: testTarget}}}},
		{"twice", Config{Targets: []TargetConfig{{Name: testTarget, Handler: f}, {Name: strings.ToUpper(testTarget), Handler: f}}}},
		{"CHAP without secret", Config{Targets: []TargetConfig{{Name: testTarget, Handler: f, CHAP: &CHAP{User: "x"}}}}},
		{"window", Config{Limits: Limits{Window: -1}}},
		{"memory below a command", Config{Limits: Limits{MaxCommandData: 2 << 20, ConnMemory: 1 << 20}}},
	}
	for _, row := range rows {
		if _, err := New(row.cfg); err == nil {
			t.Errorf("%s: no error", row.name)
		}
	}
}

func FuzzLoginText(f *testing.F) {
	exec := block.NewLive()
	f.Cleanup(exec.Stop)
	p, err := New(Config{Targets: []TargetConfig{{Name: testTarget, Handler: newFake(exec, 0), CHAP: mutual}, {Name: testTarget + "2", Handler: newFake(exec, 0)}}})
	if err != nil {
		f.Fatal(err)
	}
	id := func(target string) []byte {
		return appendKey(appendKey(nil, keyInitiatorName, testInitiator), keyTargetName, target)
	}
	f.Add(byte(0x87), append(id(testTarget+"2"), (&Client{}).keys()...), byte(0), []byte{})
	f.Add(byte(0x00), appendKey(id(testTarget), keyAuthMethod, "CHAP"), byte(0x81), appendKey(nil, keyChapA, "5"))
	f.Add(byte(0x44), []byte("InitiatorName=iqn.a\x00Sess"), byte(0x87), []byte("ionType=Discovery\x00"))
	f.Fuzz(func(t *testing.T, flags1 byte, text1 []byte, flags2 byte, text2 []byte) {
		l := newLogin(p, 1)
		for i, flags := range []byte{flags1, flags2, flags2} {
			text := text1
			if i > 0 {
				text = text2
			}
			var hdr [bhsLen]byte
			hdr[offFlags] = flags
			reply, err := l.step(hdr[:], text)
			if (err != nil) != (reply.status != loginOK) {
				t.Fatalf("status %04x, %v", reply.status, err)
			}
			if err != nil {
				return
			}
			if len(reply.text) > loginSegment {
				t.Fatalf("%d bytes of answer", len(reply.text))
			}
			if reply.full {
				if l.target != nil && l.target.Name == testTarget && !l.chap.done {
					t.Fatal("logged in without CHAP")
				}
				if l.initiator == "" || l.target == nil && !l.neg.discovery {
					t.Fatal("logged in without names")
				}
				return
			}
		}
	})
}
