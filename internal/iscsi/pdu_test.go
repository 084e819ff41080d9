package iscsi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/arraysim/arraysim/internal/scsi"
)

// The vectors of RFC 7143 Appendix A.4.
func TestCRC32CVectors(t *testing.T) {
	ascending, descending := make([]byte, 32), make([]byte, 32)
	for i := range 32 {
		ascending[i], descending[31-i] = byte(i), byte(i)
	}
	read10, _ := hex.DecodeString("01c000000000000000000000000000001400000000000400000000140000001828000000000000000200000000000000")
	for _, row := range []struct {
		name string
		data []byte
		want string // in the order of the wire
	}{
		{"32 bytes of zeros", make([]byte, 32), "aa36918a"},
		{"32 bytes of ones", bytes.Repeat([]byte{0xff}, 32), "43aba862"},
		{"ascending", ascending, "4e79dd46"},
		{"descending", descending, "5cdb3f11"},
		{"a READ(10) PDU", read10, "563a96d9"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, crc32c(0, row.data)))
			if got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

func TestExtendedCDBParsing(t *testing.T) {
	base := make([]byte, bhsLen)
	for i := range 16 {
		base[offCDB+i] = byte(i)
	}
	for _, row := range []struct {
		name string
		ahs  string
		n    int
		ok   bool
	}{
		{"none", "", 16, true},
		{"16 more bytes", "00110100" + "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 32, true},
		{"one byte and padding", "0002010055000000", 17, true},
		{"none inside", "00010100", 16, true},
		{"after a read length", "0005020000000200" + "0005010001020304", 20, true},
		{"unknown type", "00050900deadbeef", 16, true},
		{"length zero", "00000100", 16, false},
		{"longer than what is there", "0006010001020304", 16, false},
		{"cut short", "0005", 16, false},
		{"twice", "0005010001020304" + "0005010001020304", 20, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			ahs, err := hex.DecodeString(row.ahs)
			if err != nil {
				t.Fatal(err)
			}
			var cdb [maxCDBLen]byte
			n, ok := extendedCDB(cdb[:], base, ahs)
			if ok != row.ok || ok && n != row.n {
				t.Errorf("got %d, %v, want %d, %v", n, ok, row.n, row.ok)
			}
		})
	}
}

// feed runs a byte stream through a receiver in pieces of at most step bytes and
// returns the PDUs that came out.
func feed(stream []byte, step, maxSegment int, headerDigest, dataDigest bool) (pdus [][]byte, err error) {
	rx := &receiver{maxSegment: maxSegment, headerDigest: headerDigest, dataDigest: dataDigest}
	rx.use(newReceiveMemory())
	var data []byte
	for len(stream) > 0 {
		direct, rest := rx.space()
		n := 0
		for _, d := range append(append([][]byte(nil), direct...), rest) {
			k := copy(d, stream[:min(len(stream), step-n)])
			stream = stream[k:]
			n += k
			if k < len(d) {
				break
			}
		}
		rx.filled(direct, n)
		for {
			if !rx.inData {
				ok, err := rx.header()
				if err != nil {
					return pdus, err
				}
				if !ok {
					break
				}
				data = make([]byte, rx.left)
				if half := len(data) / 2; half > 0 {
					rx.places = append(rx.places[:0], data[:half], data[half:])
					rx.dst = rx.places
				} else if len(data) > 0 {
					rx.places = append(rx.places[:0], data)
					rx.dst = rx.places
				}
			}
			done, err := rx.data()
			if err != nil {
				return pdus, err
			}
			if !done {
				break
			}
			pdus = append(pdus, append(append(append([]byte(nil), rx.hdr[:]...), rx.ahs...), data...))
		}
		rx.compact()
	}
	return pdus, nil
}

func TestReceiver(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 4, 511, 512, 0, 4096, directMin - 1, directMin, 100000, 262144, 7, 0, 262143, 65536}
	for _, digests := range []bool{false, true} {
		var stream []byte
		var want [][]byte
		for i, n := range sizes {
			h := make([]byte, bhsLen)
			h[0] = byte(i)
			ahs := pattern(4*(i%3), i)
			data := pattern(n, i)
			stream = appendPDU(stream, h, ahs, data, digests, digests)
			want = append(want, append(append(append([]byte(nil), h...), ahs...), data...))
		}
		for _, step := range []int{1 << 30, 262144, 65537, 8192, 4095, 47} {
			got, err := feed(stream, step, 262144, digests, digests)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("step %d: %d PDUs, want %d", step, len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Errorf("step %d: PDU %d differs", step, i)
				}
			}
		}
		if !digests {
			continue
		}
		// Any flipped bit is found.
		for at := range bhsLen + digestLen {
			bad := bytes.Clone(stream)
			bad[at] ^= 0x10
			if _, err := feed(bad, 1<<30, 262144, true, true); err == nil && (at < offAHSLen || at > offDataLen+2) {
				t.Errorf("flipped bit in byte %d is not found", at)
			}
		}
	}
}

func TestReceiverRefusesLongSegments(t *testing.T) {
	h := make([]byte, bhsLen)
	stream := appendPDU(nil, h, nil, make([]byte, 1001), false, false)
	if _, err := feed(stream, 1<<30, 1000, false, false); err == nil {
		t.Error("a segment above the limit was taken")
	}
}

func FuzzPDU(f *testing.F) {
	h := make([]byte, bhsLen)
	f.Add(appendPDU(nil, h, nil, nil, false, false), uint16(48), false, false)
	f.Add(appendPDU(nil, h, []byte{0, 5, 1, 0, 1, 2, 3, 4}, []byte("data"), true, true), uint16(7), true, true)
	f.Add(appendPDU(appendPDU(nil, h, nil, make([]byte, 20000), false, true), h, nil, nil, false, true), uint16(9000), false, true)
	f.Fuzz(func(t *testing.T, stream []byte, step uint16, headerDigest, dataDigest bool) {
		pdus, err := feed(stream, int(step)+1, 32768, headerDigest, dataDigest)
		whole, err2 := feed(stream, 1<<30, 32768, headerDigest, dataDigest)
		if (err == nil) != (err2 == nil) || len(pdus) != len(whole) {
			t.Fatalf("in pieces %d PDUs, %v; at once %d, %v", len(pdus), err, len(whole), err2)
		}
		// What came out goes in again.
		var again []byte
		for i, p := range pdus {
			if !bytes.Equal(p, whole[i]) {
				t.Fatalf("PDU %d differs", i)
			}
			n := bhsLen + bhs(p).ahsLen()
			again = appendPDU(again, p[:bhsLen], p[bhsLen:n], p[n:], headerDigest, dataDigest)
			var cdb [maxCDBLen]byte
			extendedCDB(cdb[:], p[:bhsLen], p[bhsLen:n])
		}
		if len(again) > len(stream) {
			t.Fatalf("%d bytes of PDUs out of %d", len(again), len(stream))
		}
		if err != nil {
			return
		}
		back, err := feed(again, 1<<30, 32768, headerDigest, dataDigest)
		if err != nil || len(back) != len(pdus) {
			t.Fatalf("encoded again: %d PDUs of %d, %v", len(back), len(pdus), err)
		}
	})
}

// TestHugeTransferLength: a command for more than the portal moves is refused, also where its length
// is no int.
func TestHugeTransferLength(t *testing.T) {
	for _, edtl := range []uint32{65 << 20, 1 << 31, 0xfffffe00} {
		for _, flag := range []byte{flagRead, flagWrite} {
			t.Run(fmt.Sprintf("%#x, flag %#x", edtl, flag), func(t *testing.T) {
				r := newRig(t, nil)
				c := r.login(nil)
				hdr, _ := c.CommandHeader(0, cdb10(opTestUnitReady, 0, 0), 0, 0)
				h := bhs(hdr[:])
				h[offFlags] |= flag
				h.put32(offEDTL, edtl)
				if err := c.Send(hdr, nil, nil); err != nil {
					t.Fatal(err)
				}
				pdu, err := c.Receive()
				if err != nil {
					t.Fatal(err)
				}
				h = bhs(pdu.Header[:])
				if h.opcode() != opResponse || h[offStatus] != byte(scsi.StatusCheckCondition) || int(h.u32(offResidual)) != intOf(edtl) {
					t.Errorf("opcode %#x, status %#x, residual %#x", h.opcode(), h[offStatus], h.u32(offResidual))
				}
			})
		}
	}
}
