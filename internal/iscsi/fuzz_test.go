package iscsi

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// FuzzCHAP gives the target's side of an authentication any two messages: who does not know the secret never gets in,
// and never gets a signature.
func FuzzCHAP(f *testing.F) {
	f.Add([]byte("CHAP_A=5\x00"), []byte("CHAP_N=joe\x00CHAP_R=0xd66e9de3d16948f307a541b37962d1d7\x00"))
	f.Add([]byte("CHAP_A=5,6,7,8\x00"), []byte("CHAP_N=joe\x00CHAP_R=0b1m6d49FpSPMHpUGzeWLR1w==\x00CHAP_I=7\x00CHAP_C=0x0102\x00"))
	f.Add([]byte("CHAP_A=7\x00CHAP_N=joe\x00"), []byte("CHAP_A=5\x00CHAP_R=0x\x00"))
	f.Add([]byte("CHAP_A=8\x00"), []byte("right"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		conf := &CHAP{User: "joe", Secret: []byte("a long secret"), MutualUser: "array", MutualSecret: []byte("another secret")}
		s := &chapServer{conf: conf}
		right := false
		for _, text := range [][]byte{first, second} {
			if string(text) == "right" && s.asked && !s.done {
				text = appendKey(appendKey(nil, keyChapN, conf.User), keyChapR, formatBinary(chapResponse(s.algorithm, s.id, conf.Secret, s.challenge)))
				right = true
			}
			pairs, err := parseText(text)
			if err != nil {
				return
			}
			keys := map[string]string{}
			for _, p := range pairs {
				keys[p.key] = p.value
			}
			out, err := s.step(keys, nil)
			if s.done != right {
				t.Fatalf("%q, %q: done is %v", first, second, s.done)
			}
			if !right && bytes.Contains(out, []byte(keyChapR+"=")) {
				t.Fatalf("%q, %q: signed for an impostor: %q", first, second, out)
			}
			if err != nil {
				return
			}
		}
	})
}

// FuzzInitiator answers an initiator's commands with any bytes: each ends once, whatever the target sends.
func FuzzInitiator(f *testing.F) {
	answer := func(op byte, fill func(h bhs) []byte) []byte {
		h := bhs(make([]byte, bhsLen))
		h[0], h[offFlags] = op, flagFinal
		h.put32(offITT, 1)
		h.put32(offTTT, noTag)
		h.put32(offMaxCmdSN, 100)
		return appendPDU(nil, h, nil, fill(h), false, false)
	}
	f.Add(answer(opResponse, func(bhs) []byte { return nil }))
	f.Add(answer(opResponse, func(h bhs) []byte { h[offStatus] = 2; return append([]byte{0, 18, 0x70, 0, 6}, make([]byte, 15)...) }))
	f.Add(answer(opDataIn, func(h bhs) []byte { h[offFlags] |= flagStatus; return make([]byte, 512) }))
	f.Add(answer(opR2T, func(h bhs) []byte { h.put32(offResidual, 600); h.put32(offTTT, 5); h.put32(offITT, 2); return nil }))
	f.Add(answer(opR2T, func(h bhs) []byte {
		h.put32(offBufOffset, 0xFFFFFFFF)
		h.put32(offResidual, 0xFFFFFFFF)
		h.put32(offITT, 2)
		return nil
	}))
	f.Add(answer(opNopIn, func(h bhs) []byte { h.put32(offTTT, 9); h.put32(offITT, noTag); return nil }))
	f.Add(answer(opAsync, func(h bhs) []byte { h[offAsyncEvent] = 1; return nil }))
	f.Fuzz(func(t *testing.T, stream []byte) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		c := &Client{CmdSN: 1, nc: ours, r: bufio.NewReader(ours), p: defaultParams(), maxSend: 8192, MaxCmdSN: 2}
		i := newInitiator(c)
		go io.Copy(io.Discard, theirs)
		const commands = 4
		var ended atomic.Int32
		all := make(chan struct{}, commands)
		for n := range commands {
			cmd := &Command{CDB: cdb10(opRead10, 0, 2), In: [][]byte{make([]byte, 100), make([]byte, 924)}}
			if n%2 == 1 {
				cmd.CDB, cmd.In, cmd.Out = cdb10(opWrite10, 0, 2), nil, [][]byte{make([]byte, 1024)}
			}
			cmd.Done = func(*Command) { ended.Add(1); all <- struct{}{} }
			i.Start(cmd)
		}
		theirs.Write(stream)
		theirs.Close()
		for range commands {
			select {
			case <-all:
			case <-time.After(patience):
				t.Fatalf("%d of %d commands ended", ended.Load(), commands)
			}
		}
		i.Close()
		if n := ended.Load(); n != commands {
			t.Fatalf("%d ends of %d commands", n, commands)
		}
	})
}
