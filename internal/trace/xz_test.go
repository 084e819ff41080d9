package trace

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// xzFile compresses data in blocks of this size, a stream for each piece of it.
func xzFile(t *testing.T, cfg xz.WriterConfig, pieces ...[]byte) []byte {
	var b bytes.Buffer
	for _, p := range pieces {
		w, err := cfg.NewWriter(&b)
		if err == nil {
			_, err = w.Write(p)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// unpack reads a compressed file.
func unpack(file []byte) ([]byte, error) {
	r, c, err := decompress(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return io.ReadAll(r)
}

// xzData has what a block may have in it: what compresses, what does not, and nothing.
func xzData() [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 150_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	text := []byte(strings.Repeat("1 2 3 4 5 6 7 8 9\n", 10_000))
	return [][]byte{text, noise, append(bytes.Clone(text), noise...), {}, []byte("x")}
}

// TestXZForms: every form of a file that the library writes is read, and each byte of a small one counts.
func TestXZForms(t *testing.T) {
	all := xzData()
	for _, cfg := range []xz.WriterConfig{{NoCheckSum: true}, {CheckSum: xz.CRC32}, {CheckSum: xz.CRC64}, {CheckSum: xz.SHA256}} {
		for _, size := range []int64{0, 100_000, 777} {
			cfg.BlockSize = size
			for _, data := range all {
				if size == 777 { // each block takes its dictionary
					data = data[:min(len(data), 3000)]
				}
				if got, err := unpack(xzFile(t, cfg, data)); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%+v, %d bytes: read %d, %v", cfg, len(data), len(got), err)
				}
			}
			two := xzFile(t, cfg, all[0][:2000], all[1][:2000])
			first := xzFile(t, cfg, all[0][:2000])
			padded := append(append(append(bytes.Clone(first), 0, 0, 0, 0, 0, 0, 0, 0), two[len(first):]...), 0, 0, 0, 0)
			for _, file := range [][]byte{two, padded} {
				if got, err := unpack(file); err != nil || !bytes.Equal(got, append(bytes.Clone(all[0][:2000]), all[1][:2000]...)) {
					t.Errorf("%+v, two streams: read %d, %v", cfg, len(got), err)
				}
			}
		}
		cfg.BlockSize = 50
		want := all[0][:120]
		file := xzFile(t, cfg, want)
		for i := range file {
			bad := bytes.Clone(file)
			bad[i] ^= 0x10
			// Without a check nothing tells that the data is other data. The length of a chunk may be wrong where its data ends by itself.
			if got, err := unpack(bad); err == nil && i >= len(xzMagic) && !cfg.NoCheckSum && !bytes.Equal(got, want) {
				t.Errorf("%+v: byte %d is wrong, and read are %d bytes", cfg, i, len(got))
			}
			if _, err := unpack(file[:i]); err == nil && i >= len(xzMagic) {
				t.Errorf("%+v: cut off at %d, and read", cfg, i)
			}
		}
	}
}

// TestDictionaryOfLaterBlocks: not only the first block of a file is bound, whatever leads the reader to the others.
func TestDictionaryOfLaterBlocks(t *testing.T) {
	data := xzData()[2]
	cfg := xz.WriterConfig{NoCheckSum: true, BlockSize: 20_000}
	first := xzFile(t, cfg, data)
	const begin = 12 // the first block
	header := bytes.Clone(first[begin:][:12])
	patch := func(file []byte, at int, put ...byte) []byte {
		file = bytes.Clone(file)
		h := file[at:][:12]
		copy(h[2:8], make([]byte, 6))
		copy(h[2:], put)
		binary.LittleEndian.PutUint32(h[8:], crc32.ChecksumIEEE(h[:8]))
		return file
	}
	last := bytes.LastIndex(first, header)
	if last <= begin || header[2] != 0x21 {
		t.Fatalf("the blocks are not found: %x", first[:24])
	}
	// Its first chunk says that it is longer than what is read of it.
	longer := patch(first, last, 0x21, 1, 36)
	at := begin + 12 + 3
	binary.BigEndian.PutUint16(longer[at:], binary.BigEndian.Uint16(longer[at:])+1000)
	for name, file := range map[string][]byte{
		"the last block":              patch(first, last, 0x21, 1, 36), // 1 GiB
		"a block of another stream":   append(bytes.Clone(first), patch(first, begin, 0x21, 1, 36)...),
		"a block behind a long chunk": longer,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := unpack(file)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "dictionary that is larger than 256 MiB") {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.HasPrefix(append(data, data...), got) || len(got) == 0 {
			t.Errorf("%s: %d bytes are read, or wrong", name, len(got))
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
			t.Errorf("%s: took %d MiB", name, took>>20)
		}
	}
	// The number of the filter in more bytes than it needs.
	if _, err := unpack(patch(first, last, 0xa1, 0, 1, 36)); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("a filter in two bytes: %v", err)
	}
}

// TestWindowOfLaterFrames is the same for Zstandard, whose library looks at each frame.
func TestWindowOfLaterFrames(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	first := w.EncodeAll([]byte("1\n2\n3\n"), nil)
	for log, ok := range map[byte]bool{20: true, 28: true, 29: false, 41: false} {
		// Magic, no content size and no check, the window; then one last block as it is.
		frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3, 2<<3 | 1, 0, 0, '4', '\n'}
		got, err := unpack(append(bytes.Clone(first), frame...))
		if (err == nil) != ok || ok && string(got) != "1\n2\n3\n4\n" {
			t.Errorf("a window of 1<<%d: %q, %v", log, got, err)
		}
	}
}
