package admin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
	"github.com/arraysim/arraysim/internal/scsi"
)

// What a peer is, is checked before anything is opened.
func TestPeerConfiguration(t *testing.T) {
	const node = "node: {id: 1, secret_file: s}\n"
	for _, row := range []struct{ name, text, says string }{
		{"a source", "peers: [{name: b, nodes: ['a:1', '[::1]:2'], secret_file: s}]", ""},
		{"a destination", node + "peers: [{name: b, lend: true, secret_file: s}]", ""},
		{"both", node + "peers: [{name: b, lend: true, nodes: ['a:1'], secret_file: s}]", ""},
		{"no name", "peers: [{nodes: ['a:1'], secret_file: s}]", "not a name"},
		{"a name for the terminal", "peers: [{name: \"\\e[2J\", nodes: ['a:1'], secret_file: s}]", "not a name"},
		{"twice", "peers: [{name: b, nodes: ['a:1'], secret_file: s}, {name: b, nodes: ['a:2'], secret_file: t}]", "appears twice"},
		{"no secret", "peers: [{name: b, nodes: ['a:1']}]", "no secret_file"},
		{"neither", "peers: [{name: b, secret_file: s}]", "add nodes, or lend"},
		{"no link", "peers: [{name: b, lend: true, secret_file: s}]", "add node"},
		{"no port", "peers: [{name: b, nodes: [a], secret_file: s}]", "not a valid address"},
		{"a node that forwards", "node: {id: 2, secret_file: s, forward: 'a:1'}\npeers: [{name: b, nodes: ['a:1'], secret_file: s}]", "a node that forwards has no array"},
		{"a word that is none", "peers: [{name: b, nodes: ['a:1'], secret_file: s, push: true}]", "push"},
	} {
		_, err := ParseConfig("f", []byte(row.text))
		if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
			t.Errorf("%s: %v, want %q", row.name, err, row.says)
		}
	}
}

// TestCopiesBetweenArrays: a host that is logged in to two daemons copies from one to the other, by an EXTENDED COPY and by a
// token. What is written counts once, as undercover writes of the destination's partition; what is read counts as the
// source's lower layer reads; the copies have a source that is another array.
func TestCopiesBetweenArrays(t *testing.T) {
	const host, size = "iqn.2026-01.host:a", 2 << 20
	dir := t.TempDir()
	for _, name := range []string{"node", "peer"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the secret of the "+name+"s, which is long\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	const array = "store: memory\ncache: {size: 8MiB}\nportal: {listen: 127.0.0.1:0}\nmetrics: {listen: 127.0.0.1:0}\n" +
		"pools:\n  - {name: NAME, mdisks: [{name: m, size: 128MiB}]}\nvolumes:\n  - {name: v, pool: NAME, size: 16MiB, export: {lun: 0}}\n"
	config := func(name, more string) *Config {
		return parse(t, strings.ReplaceAll(array, "NAME", name)+more, t.TempDir())
	}
	src := start(t, config("from", fmt.Sprintf("node: {id: 1, name: a, listen: '%s', secret_file: %s}\npeers: [{name: b, lend: true, secret_file: %s}]\n", address, filepath.Join(dir, "node"), filepath.Join(dir, "peer"))))
	dst := start(t, config("to", fmt.Sprintf("peers: [{name: a, nodes: ['%s'], secret_file: %s}]\n", address, filepath.Join(dir, "peer"))))
	for end := time.Now().Add(startTimeout); !dst.d.peers[0].Peer().Linked; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("there is no link")
		}
	}
	data := pattern(t, size)
	src.write("v", 0, data)
	there, here := src.session(host, 0, 1, 0), dst.session(host, 0, 1, 0)
	naa := func(r *running) []byte { n := r.volumeOf("v").Info().NAA; return n[:] }
	list := dst.copyList("v", "v", size>>9)
	copy(list[16+8:], naa(src)) // of the first CSCD descriptor
	if res, err := here.Command(0, copyCDB(0, list), list, 0); err != nil || res.Status != scsi.StatusGood {
		t.Fatalf("the copy ends with %+v, %v", res, err)
	}
	if !bytes.Equal(dst.read("v", 0, size), data) {
		t.Error("the destination has other data")
	}
	token := tokenOf(t, there, size>>9)
	redeem := make([]byte, 536+16)
	binary.BigEndian.PutUint16(redeem, uint16(len(redeem)-2))
	copy(redeem[16:], token)
	binary.BigEndian.PutUint16(redeem[534:], 16)
	binary.BigEndian.PutUint64(redeem[536:], size>>9) // behind the first copy
	binary.BigEndian.PutUint32(redeem[544:], size>>9)
	if res, err := here.Command(0, tokenCDB(0x11, 9, len(redeem)), redeem, 0); err != nil || res.Status != scsi.StatusGood {
		t.Fatalf("the token: %+v, %v", res, err)
	}
	if !bytes.Equal(dst.read("v", size>>9, size), data) {
		t.Error("the destination of the token has other data")
	}
	to, from := dst.scrape(), src.scrape()
	for _, want := range []struct {
		text, name string
		labels     []string
		value      float64
	}{
		{to, "offload_bytes_total", []string{`dst_pool="to"`, `path="copy"`, `primitive="xcopy"`, `src_pool="(another array)"`}, size},
		{to, "offload_bytes_total", []string{`dst_pool="to"`, `path="copy"`, `primitive="odx"`, `src_pool="(another array)"`}, size},
		{to, "cache_admitted_bytes_total", []string{`origin="xcopy"`}, size},
		{to, "cache_admitted_bytes_total", []string{`origin="odx"`}, size},
		{to, "peer_up", []string{`peer="a"`, `role="source"`}, 1},
		{to, "peer_links_total", []string{`peer="a"`, `role="source"`}, 1},
		{to, "peer_read_bytes_total", []string{`peer="a"`, `role="source"`}, 2 * size},
		{from, "cache_admitted_bytes_total", []string{`origin="xcopy"`}, 0},
		{from, "cache_admitted_bytes_total", []string{`origin="odx"`}, 0},
		{from, "offload_bytes_total", nil, 0},
		{from, "peer_up", []string{`peer="b"`, `role="destination"`}, 1},
		{from, "peer_read_bytes_total", []string{`peer="b"`, `role="destination"`}, 2 * size},
	} {
		if got := sumOf(t, want.text, "arraysim_"+want.name, want.labels...); got != want.value {
			t.Errorf("%s %v is %v, want %v", want.name, want.labels, got, want.value)
		}
	}
	src.stop()
	for end := time.Now().Add(startTimeout); dst.d.peers[0].Peer().Linked; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the link stays")
		}
	}
	if res, err := here.Command(0, copyCDB(0, list), list, 0); err != nil || res.Status != scsi.StatusCheckCondition || !bytes.Contains(res.Sense, []byte{0x0d, 0x02}) {
		t.Errorf("a copy from an array that is gone: %+v, %v", res, err)
	}
}

// sumOf adds the samples of a family up that have all of these labels.
func sumOf(t *testing.T, text, family string, labels ...string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(text) {
		head, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		name, has, _ := strings.Cut(head, "{")
		if name != family || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(has+",", l+",") }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v
	}
	return sum
}

// tokenOf makes a token of the first blocks of LUN 0.
func tokenOf(t *testing.T, c *iscsi.Client, blocks uint32) []byte {
	t.Helper()
	l := make([]byte, 32)
	binary.BigEndian.PutUint16(l, 30)
	binary.BigEndian.PutUint16(l[14:], 16)
	binary.BigEndian.PutUint32(l[24:], blocks)
	if res, err := c.Command(0, tokenCDB(0x10, 1, len(l)), l, 0); err != nil || res.Status != scsi.StatusGood {
		t.Fatalf("POPULATE TOKEN: %+v, %v", res, err)
	}
	cdb := tokenCDB(0x07, 0, 1024)
	cdb[0] = 0x84
	binary.BigEndian.PutUint32(cdb[2:], 1)
	cdb[6], cdb[7], cdb[8], cdb[9] = 0, 0, 0, 0
	res, err := c.Command(0, cdb, nil, 1024)
	if err != nil || res.Status != scsi.StatusGood {
		t.Fatalf("RECEIVE ROD TOKEN INFORMATION: %+v, %v", res, err)
	}
	at := 32 + int(res.Data[13]) + 6
	return res.Data[at : at+512]
}

func tokenCDB(sa byte, id uint32, n int) []byte {
	b := make([]byte, 16)
	b[0], b[1] = 0x83, sa
	binary.BigEndian.PutUint32(b[6:], id)
	binary.BigEndian.PutUint32(b[10:], uint32(n))
	return b
}
