package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const samples = "../../testdata/traces"

// readAll returns all records of a trace, and what ended it.
func readAll(r *Reader) ([]Record, error) {
	var out []Record
	var rec Record
	for {
		if err := r.Next(&rec); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, err
		}
		out = append(out, rec)
	}
}

// TestDictionaryOfXZ: a file asks for no more memory than its kind may.
func TestDictionaryOfXZ(t *testing.T) {
	var b bytes.Buffer
	z, err := xz.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(z, "1\n2\n3\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	const block = 12 // its header
	end := block + (int(file[block])+1)*4 - 4
	at := bytes.Index(file[block:end], []byte{0x21, 1}) + block + 2
	for size, ok := range map[byte]bool{22: true, 32: true, 33: false, 36: false, 41: false} {
		file[at] = size
		binary.LittleEndian.PutUint32(file[end:], crc32.ChecksumIEEE(file[block:end]))
		r, err := NewReader(bytes.NewReader(file), "t", Options{})
		if (err == nil) != ok {
			t.Errorf("a dictionary of code %d: %v", size, err)
		}
		if err == nil {
			r.Close()
		}
	}
}

// TestByteOrderMark: text is read without the mark in front of it, and bytes that only look like it are data.
func TestByteOrderMark(t *testing.T) {
	for want, data := range map[string]string{
		"cloudphysics": "\ufeff1,1.0,28,4096,0\r\n1,2.0,28,4096,8\r\n",
		"fio":          "\ufefffio version 2 iolog\nf add\nf open\nf read 0 4096\nf write 4096 4096\n",
		"u32":          "\xef\xbb\xbf\x00\x01\x00\x00\x00",
	} {
		r, err := NewReader(strings.NewReader(data), "t", Options{})
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		var rec Record
		for err == nil {
			err = r.Next(&rec)
		}
		if n, _ := r.Bad(); r.Format() != want || r.Records() != 2 || n != 0 {
			t.Errorf("%s: read as %s, %d records and %d bad ones, %v", want, r.Format(), r.Records(), n, err)
		}
	}
	if _, err := NewReader(strings.NewReader("\ufeff"), "t", Options{}); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("nothing but the mark: %v", err)
	}
}

func TestFormats(t *testing.T) {
	vscsi := func(version int, rows ...[5]uint64) string { // cmd, len, lbn, us, rt
		var b []byte
		for i, r := range rows {
			if version == 1 {
				b = le.AppendUint32(b, uint32(i))
				b = le.AppendUint32(b, uint32(r[1]))
				b = le.AppendUint32(b, 1)
				b = le.AppendUint16(b, uint16(r[0]))
				b = le.AppendUint16(b, 0x100)
			} else {
				b = le.AppendUint16(b, uint16(r[0]))
				b = le.AppendUint16(b, 0x200)
				b = le.AppendUint32(b, uint32(i))
				b = le.AppendUint32(b, uint32(r[1]))
				b = le.AppendUint32(b, 1)
			}
			b = le.AppendUint64(b, r[2])
			b = le.AppendUint64(b, r[3])
			if version == 2 {
				b = le.AppendUint64(b, r[4])
			}
		}
		return string(b)
	}
	oracle := func(rows ...[3]uint64) string { // time, object, size
		var b []byte
		for _, r := range rows {
			b = le.AppendUint32(b, uint32(r[0]))
			b = le.AppendUint64(b, r[1])
			b = le.AppendUint32(b, uint32(r[2]))
			b = le.AppendUint64(b, ^uint64(0))
		}
		return string(b)
	}
	blk := func(o binary.AppendByteOrder, rows ...[6]uint64) string { // time, sector, bytes, action, device, bytes of payload
		var b []byte
		for i, r := range rows {
			b = o.AppendUint32(b, 0x65617407)
			b = o.AppendUint32(b, uint32(i+1))
			b = o.AppendUint64(b, r[0])
			b = o.AppendUint64(b, r[1])
			b = o.AppendUint32(b, uint32(r[2]))
			b = o.AppendUint32(b, uint32(r[3]))
			b = o.AppendUint32(b, 697)
			b = o.AppendUint32(b, uint32(r[4]))
			b = o.AppendUint32(b, 3)
			b = o.AppendUint16(b, 0)
			b = o.AppendUint16(b, uint16(r[5]))
			b = append(b, make([]byte, r[5])...)
		}
		return string(b)
	}
	for _, row := range []struct {
		name, format, data string
		want               []Record
		disks              string
	}{
		{
			"vscsi", "vscsi", vscsi(1, [5]uint64{0x28, 4096, 100, 5000}, [5]uint64{0x2a, 512, 7, 5001}, [5]uint64{0x35, 0, 0, 5002}, [5]uint64{0x88, 1 << 20, 1 << 40, 6000}),
			[]Record{{0, Read, 0, 100 * 512, 4096}, {1000, Write, 0, 7 * 512, 512}, {1e6, Read, 0, 1 << 49, 1 << 20}}, "disk",
		},
		{"vscsi version 2", "vscsi2", vscsi(2, [5]uint64{0x0a, 4096, 8, 50, 9}, [5]uint64{0x28, 512, 9, 51, 9}), []Record{{0, Write, 0, 4096, 4096}, {1000, Read, 0, 9 * 512, 512}}, "disk"},
		{
			"CloudPhysics", "cloudphysics", "version,time,op,size,lbn\n1,100,28,4096,8\n1,100.5,2a,512,9\r\n1,101,35,0,0\n1,99,8a,1024,3",
			[]Record{{0, Read, 0, 4096, 4096}, {5e8, Write, 0, 9 * 512, 512}, {5e8, Write, 0, 1536, 1024}}, "disk",
		},
		{
			"MSR Cambridge", "msr", "128166372003061629,hm,0,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,9\n128166372016382155,usr,0,read,0,512,1\n",
			[]Record{{0, Read, 0, 383496192, 32768}, {1332052600, Write, 1, 2822144, 4096}, {1332052600, Read, 2, 0, 512}}, "hm.0 hm.1 usr.0",
		},
		{
			"blkparse", "blkparse", "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n" +
				"  8,16   1        7     1.500000000   800  Q  RA 64 + 256 [dd]\n  8,0    3        9     1.6   697  Q  FN [swapper]\n  8,0    3       10     1.700000000   697  Q   D 0 + 8 [fstrim]\n\nCPU0 (8,0):\n Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB\n",
			[]Record{{0, Write, 0, 223490 * 512, 4096}, {15e8, Read, 1, 64 * 512, 131072}}, "8,0 8,16",
		},
		{
			"blkparse of issued only", "blkparse", "  8,0    3        1     0.000000000   697  D   R 8 + 8 [x]\n  8,0    3        2     0.000001829   697  C   R 8 + 8 [0]\n",
			[]Record{{0, Read, 0, 4096, 4096}}, "8,0",
		},
		{
			"fio version 2", "fio", "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 4096 8192\n/dev/sdb wait 150 0\n/dev/sdb wait 100 0\n/dev/sdb write 0 512\n/dev/sdb wait 200 0\n/dev/sdb write 512 512\n/dev/sdb trim 0 512\n/dev/sdb sync 0 0\n/dev/sdb close\n",
			[]Record{{0, Read, 0, 4096, 8192}, {150e6, Write, 0, 0, 512}, {200e6, Write, 0, 512, 512}}, "/dev/sdb",
		},
		{
			"fio version 3", "fio", "fio version 3 iolog\n10 a add\n10 a open\n12 a read 4096 8192\n13 a wait 99\n15 b write 0 512\n15 b sync_file_range 0 0\n15 b syncfs 0 0\n15 a close\n",
			[]Record{{0, Read, 0, 4096, 8192}, {3000, Write, 1, 0, 512}}, "a b",
		},
		{
			"blktrace", "blktrace", blk(binary.LittleEndian, [6]uint64{1000, 0, 0, 1<<26 | 2, 8 << 20, 12}, [6]uint64{1500, 223490, 4096, 1<<20 | 1<<17 | 1, 8 << 20, 0}, [6]uint64{1600, 223490, 4096, 1<<22 | 1<<17 | 7, 8 << 20, 0},
				[6]uint64{2500, 64, 131072, 1<<20 | 1<<16 | 1, 8<<20 | 16, 5}, [6]uint64{2600, 64, 4096, 1<<29 | 1<<20 | 1<<17 | 1, 8 << 20, 0}),
			[]Record{{0, Write, 0, 223490 * 512, 4096}, {1000, Read, 1, 64 * 512, 131072}}, "8,0 8,16",
		},
		{ // the notifications of a process and of the time, a flush and a discard
			"blktrace of completed only, big-endian", "blktrace", blk(binary.BigEndian, [6]uint64{5, 0, 0, 1 << 26, 0, 16}, [6]uint64{6, 0, 0, 1<<26 | 1, 0, 8}, [6]uint64{7, 0, 0, 1<<18 | 1<<16 | 1, 259 << 20, 0}, [6]uint64{8, 0, 512, 1<<29 | 1<<22 | 7, 259 << 20, 0},
				[6]uint64{10, 8, 512, 1<<23 | 1<<16 | 8, 259 << 20, 3}),
			[]Record{{0, Read, 0, 4096, 512}}, "259,0",
		},
		{
			"SPC", "spc", "0,20941264,8192,W,0.551706\n0,20939840,8192,w,0.554041\n1,3436288,15872,r,1.011732,x,y\n",
			[]Record{{0, Write, 0, 20941264 * 512, 8192}, {2335000, Write, 0, 20939840 * 512, 8192}, {460026000, Read, 1, 3436288 * 512, 15872}}, "0 1",
		},
		{
			"Alibaba", "alibaba", "419,W,8792731648,16384,1577808000000042\n725,R,59110326272,360448,1577808000000068\n",
			[]Record{{0, Write, 0, 8792731648, 16384}, {26000, Read, 1, 59110326272, 360448}}, "419 725",
		},
		{
			"Tencent", "tencent", "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n",
			[]Record{{0, Read, 0, 12910952 * 512, 65536}, {1e9, Write, 1, 6338688 * 512, 4096}}, "1063 1627",
		},
		{"list of the ARC paper", "arc", "110765 64 0 0\n5 1 0 1\n", []Record{{0, Read, 0, 110765 * 512, 64 * 512}, {0, Read, 0, 2560, 512}}, "disk"},
		{"list of numbers", "list", "# two blocks\n7\n\n9 2\n", []Record{{0, Read, 0, 7 * 4096, 4096}, {0, Read, 0, 9 * 4096, 8192}}, "disk"},
		{"binary list", "u32", "\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x01\x00", []Record{{0, Read, 0, 0, 4096}, {0, Read, 0, 5 * 4096, 4096}, {0, Read, 0, 65536 * 4096, 4096}}, "disk"},
		{"oracleGeneral", "oracleGeneral", oracle([3]uint64{10, 1 << 63, 100}, [3]uint64{12, 5, 1}), []Record{{0, Read, 0, 1 << 63, 100}, {2e9, Read, 0, 5, 1}}, "disk"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, force := range []string{"", row.format} {
				for name, data := range packed(t, row.data) {
					r, err := NewReader(bytes.NewReader(data), row.name, Options{Format: force})
					if err != nil {
						t.Fatal(err)
					}
					if r.Format() != row.format {
						t.Fatalf("%s: taken for %s", name, r.Format())
					}
					got, err := readAll(r)
					if err != nil || fmt.Sprint(got) != fmt.Sprint(row.want) || strings.Join(r.Disks(), " ") != row.disks {
						t.Errorf("%s: got %v of %v, %v; want %v of %v", name, got, r.Disks(), err, row.want, row.disks)
					}
					if n := r.BytesRead(); n != int64(len(data)) {
						t.Errorf("%s: %d bytes read, want %d", name, n, len(data))
					}
					if err := r.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// packed returns the data as it is and compressed.
func packed(t *testing.T, data string) map[string][]byte {
	out := map[string][]byte{"plain": []byte(data)}
	for name, open := range map[string]func(w io.Writer) (io.WriteCloser, error){
		"gzip": func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"zstd": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"xz":   func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
	} {
		var b bytes.Buffer
		w, err := open(&b)
		if err == nil {
			_, err = io.WriteString(w, data)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		out[name] = b.Bytes()
	}
	return out
}

func TestUnit(t *testing.T) {
	r, err := NewReader(strings.NewReader("3 2\n"), "x", Options{Unit: 512})
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if err != nil || r.Unit() != 512 || len(got) != 1 || got[0].Offset != 1536 || got[0].Length != 1024 {
		t.Errorf("got %v, unit %d, %v", got, r.Unit(), err)
	}
}

func TestBadRecords(t *testing.T) {
	line := func(i int) string { return fmt.Sprintf("1,%d,28,4096,%d\n", i, i) }
	many := func(bad ...int) string {
		var b strings.Builder
		for i := 1; i <= 2000; i++ {
			if len(bad) > 0 && bad[0] == i {
				b.WriteString("1,5,28,abc,7\n")
				bad = bad[1:]
				continue
			}
			b.WriteString(line(i))
		}
		return b.String()
	}
	half := make([]int, 0, 1000)
	for i := 3; i < 2000; i += 2 {
		half = append(half, i)
	}
	for _, row := range []struct {
		name, data string
		opt        Options
		good, bad  int64
		want       string
	}{
		{"a few", many(3, 700), Options{MaxBad: 0.01}, 1998, 2, ""},
		{"a few where none may be", many(1500), Options{MaxBad: -1}, 0, 1, "of 1500 records are bad, more than the share of 0 that is allowed; the first is line 1500: its size is not a number"},
		{"half of them", many(half...), Options{MaxBad: 0.1}, 0, 500, "500 of 1001 records are bad, more than the share of 0.1 that is allowed; the first is line 3: its size is not a number, or more than 1 GiB; choose the format with --format, or allow more with --max-bad"},
		{"a short trace", "1,5,28,4096,7\nnonsense\n", Options{Format: "cloudphysics", MaxBad: 0.1}, 1, 1, "1 of 2 records are bad, more than the share of 0.1 that is allowed; the first is line 2: it does not have 5 fields"},
		{"the wrong format", many(), Options{Format: "msr", MaxBad: 0.1}, 0, 1000, "1000 of 1000 records are bad"},
		{"a line without end", line(1) + strings.Repeat("x", 1<<20) + "\n" + line(2), Options{MaxBad: 0.5}, 2, 1, ""},
		{"a record that is cut", strings.Repeat("\x05\x00\x00\x00", 3) + "\x01", Options{Format: "u32", MaxBad: 0.3}, 3, 1, ""},
		{"nothing of interest", "version,time,op,size,lbn\n", Options{Format: "cloudphysics"}, 0, 0, "has no request"},
		{"too long a request", "1,5,28,4096,7\n1,5,28,2147483648,7\n", Options{Format: "cloudphysics", MaxBad: 1}, 1, 1, ""},
		{"no length", "1,5,28,4096,7\n1,5,28,0,7\n", Options{Format: "cloudphysics", MaxBad: 1}, 1, 1, ""},
		{"beyond the end of the world", "1,5,28,4096,7\n1,5,28,4096,18446744073709551615\n", Options{Format: "cloudphysics", MaxBad: 1}, 1, 1, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := NewReader(strings.NewReader(row.data), "x.csv", row.opt)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(r)
			n, bad := r.Bad()
			if row.want == "" {
				if err != nil || int64(len(got)) != row.good || n != row.bad || r.Records() != row.good || r.Err() != nil {
					t.Errorf("%d good, %d bad %v, %v; want %d and %d", len(got), n, bad, err, row.good, row.bad)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "\n") || n != row.bad || r.Err() == nil {
				t.Errorf("got %v with %d bad, want %q with %d", err, n, row.want, row.bad)
			}
			if again := r.Next(new(Record)); !errors.Is(again, err) {
				t.Errorf("Next after the end: %v", again)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	noise := make([]byte, 4096)
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(noise); i += 8 {
		binary.LittleEndian.PutUint64(noise[i:], r.Uint64())
	}
	for _, row := range []struct{ name, path, format, want string }{
		{"no file", filepath.Join(dir, "none"), "", "no such file"},
		{"empty", write("empty", nil), "", "is empty"},
		{"noise", write("noise", noise), "", "has an unknown format; name it with --format"},
		{"prose", write("prose", []byte("It was a dark and stormy night;\nthe rain fell in torrents\n")), "", "has an unknown format"},
		{"broken gzip", write("gz", []byte("\x1f\x8bnothing")), "", "gzip"},
		{"unknown format", write("list", []byte("1\n")), "vhs", `no trace format is named "vhs"; choose from blktrace, vscsi, vscsi2, cloudphysics,`},
	} {
		if _, err := Open(row.path, Options{Format: row.format}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %q", row.name, err, row.want)
		}
	}
}

// TestCutOff: a compressed trace without its end is an error, wherever its last record ends, and not a shorter trace.
func TestCutOff(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	numbers := make([]byte, 64<<10)
	for i := 0; i < len(numbers); i += 4 {
		binary.LittleEndian.PutUint32(numbers[i:], uint32(r.IntN(1<<20)))
	}
	for name, compressed := range map[string]func(w io.Writer) (io.WriteCloser, error){
		"gzip": func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		"zstd": func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
		"xz":   func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) },
	} {
		var b bytes.Buffer
		w, err := compressed(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(numbers); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for left := 1; left < 40; left++ {
			r, err := NewReader(bytes.NewReader(b.Bytes()[:b.Len()-left]), "x", Options{Format: "u32", MaxBad: 0.5})
			if err == nil {
				_, err = readAll(r)
			}
			if err == nil || !strings.Contains(err.Error(), "cut off") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s without its last %d bytes: %v", name, left, err)
			}
		}
	}
}

// TestSamples reads the files that the repository has.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob(samples + "/*")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d samples, %v", len(files), err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, ".md") {
			continue
		}
		r, err := Open(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(r)
		if err != nil || len(got) != 200 {
			t.Errorf("%s, read as %s: %d records, %v; want 200", f, r.Format(), len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var b strings.Builder
	for i := range 50000 {
		fmt.Fprintf(&b, "128166372003061629,hm,%d,Read,%d,4096,413\n", i%3, i*4096)
	}
	r, err := NewReader(strings.NewReader(b.String()), "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rec Record
	for range 100 {
		if err := r.Next(&rec); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(20000, func() {
		if err := r.Next(&rec); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations a record", n)
	}
}
