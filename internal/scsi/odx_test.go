package scsi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
)

// modelToken is what the model knows of a token: its bytes, and those it stands for.
type modelToken struct {
	token, data []byte
	size        int // of a block
	gone        bool
}

// someRanges are up to 4 ranges of a unit of n blocks that do not overlap.
func someRanges(rng *rand.Rand, n uint64) []scsitest.Extent {
	var list []scsitest.Extent
	at := rng.Uint64N(n / 8)
	for range 1 + rng.IntN(4) {
		k := rng.Uint64N(n / 16)
		list = append(list, scsitest.Extent{LBA: at, Blocks: uint32(k)})
		at += k + rng.Uint64N(n/16)
	}
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// TestTokenModel writes, populates and writes by tokens at random, on three units
// of two block sizes, and compares with a model that knows bytes only.
func TestTokenModel(t *testing.T) {
	for _, seed := range seeds(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("repeat with -seed=%d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t)
			luns, sizes := []uint64{scsitest.Thin, scsitest.Large, scsitest.Other}, []int{512, 4096, 512}
			model := make([][]byte, 3)
			var blocks []uint64
			for i, lun := range luns {
				model[i] = bytes.Clone(r.devs[lun].Data)
				blocks = append(blocks, r.devs[lun].Info().Sectors*512/uint64(sizes[i]))
			}
			var tokens []*modelToken
			part := func(u int, e scsitest.Extent) []byte {
				return model[u][e.LBA*uint64(sizes[u]):][:int(e.Blocks)*sizes[u]]
			}
			for step := range uint32(150) {
				u := rng.IntN(3)
				lun, size := luns[u], sizes[u]
				switch rng.IntN(5) {
				case 0: // overwrite something
					e := scsitest.Extent{LBA: rng.Uint64N(blocks[u] - 64), Blocks: 1 + rng.Uint32N(63)}
					p := part(u, e)
					for i := range p {
						p[i] = byte(rng.Uint32())
					}
					_, c := r.run(r.a, lun, scsitest.CDB(0x8A, e.LBA, int(e.Blocks)), bytes.Clone(p))
					r.wants("WRITE", c, 0)
				case 1: // make a token
					k := &modelToken{size: size}
					list := someRanges(rng, blocks[u])
					for _, e := range list {
						k.data = append(k.data, part(u, e)...)
					}
					l := scsitest.PopulateList(0, 0, 0, list...)
					_, c := r.run(r.a, lun, scsitest.TokenCDB(0x10, step, l), l)
					r.wants("POPULATE TOKEN", c, 0)
					in, _ := r.run(r.a, lun, scsitest.ReceiveCDB(0x84, 7, step), nil)
					info := bytes.Join(in.DataIn, nil)
					k.token = slices.Clone(info[38 : 38+512])
					if n := binary.BigEndian.Uint64(info[16:]); n*uint64(size) != uint64(len(k.data)) {
						t.Fatalf("seed %d: a token of %d blocks, want %d bytes", seed, n, len(k.data))
					}
					tokens = append(tokens, k)
				default: // use one
					if len(tokens) == 0 {
						continue
					}
					k := tokens[rng.IntN(len(tokens))]
					list := someRanges(rng, blocks[u])
					offset := rng.Uint64N(uint64(len(k.data)/k.size) + 3)
					flags := byte(0)
					if rng.IntN(8) == 0 {
						flags = 2 // delete it
					}
					l := scsitest.WriteTokenList(flags, offset, k.token, list...)
					_, c := r.run(r.a, lun, scsitest.TokenCDB(0x11, step, l), l)
					want := 0
					switch {
					case k.gone:
						want = 0x02052309
					case k.size != size:
						want = 0x02052300
					case offset >= uint64(len(k.data)/size):
						want = 0x02052600
					}
					r.wants("WRITE USING TOKEN", c, want)
					if want != 0 {
						continue
					}
					rest := k.data[int(offset)*size:]
					for _, e := range list {
						rest = rest[copy(part(u, e), rest):]
					}
					k.gone = flags != 0
				}
			}
			valid := 0
			for _, k := range tokens {
				if !k.gone {
					valid++
				}
			}
			r.refs("valid tokens", valid)
			for i, lun := range luns {
				if !bytes.Equal(r.devs[lun].Data, model[i]) {
					t.Errorf("seed %d: LUN %d differs from the model", seed, lun)
				}
			}
			r.tg.RevokeTokens()
			r.refs("at the end", 0)
		})
	}
}

// TestRandomOperations starts copies and tokens, in the foreground and in the
// background, over devices that fail and delay, with aborts, resets and logouts.
// Nothing may stay behind.
func TestRandomOperations(t *testing.T) {
	for _, seed := range seeds(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		for _, d := range r.devs {
			d.Delay = int64(rng.IntN(3)) * 1_000_000
			d.Fault = func(*block.Request) block.Status {
				if rng.IntN(12) == 0 {
					return block.Status(1 + rng.IntN(int(block.Unsupported)))
				}
				return block.OK
			}
		}
		token := make([]byte, 512)
		for range 200 {
			id, lun := rng.Uint32N(6), []uint64{scsitest.Thin, scsitest.Other}[rng.IntN(2)]
			var cdb, out []byte
			switch rng.IntN(7) {
			case 0:
				out = scsitest.PopulateList(byte(rng.IntN(2)), 1+rng.Uint32N(2), 0, someRanges(rng, scsitest.Sectors)...)
				cdb = scsitest.TokenCDB(0x10, id, out)
			case 1, 2:
				out = scsitest.WriteTokenList(byte(rng.IntN(4)), rng.Uint64N(9), token, someRanges(rng, scsitest.Sectors)...)
				cdb = scsitest.TokenCDB(0x11, id, out)
			case 3:
				out = r.list(id, byte(rng.IntN(2)*2))
				cdb = scsitest.CopyCDB4(out)
			case 4:
				cdb = scsitest.ReceiveCDB(0x83, 0x1C, id)
			case 5:
				r.a.Manage(5, lun<<48, 0, nothing)
				cdb = tur
			default:
				if in, c := r.run(r.a, lun, scsitest.ReceiveCDB(0x84, 7, id), nil); c == 0 {
					if d := bytes.Join(in.DataIn, nil); len(d) >= 550 && d[13] == 0 {
						copy(token, d[38:])
					}
				}
				if rng.IntN(10) == 0 {
					r.a.Close(func() {})
					r.a = r.login(initiatorA)
				}
				continue
			}
			r.run(r.a, lun, cdb, out)
		}
		r.a.Close(func() {})
		r.exec.RunUntil(r.exec.Now() + 10*second)
		for i, d := range r.devs {
			if d.Refs != 0 {
				t.Fatalf("seed %d (repeat with -seed=%d): device %d: %d references are not released", seed, seed, i, d.Refs)
			}
		}
	}
}

func nothing(scsi.TMFResponse) {}
