package admin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	onePool   = "pools: [{name: p, mdisks: [{name: m, size: 1GiB}]}]\n"
	oneVolume = "volumes:\n  - {name: v, pool: p, size: 1MiB"
)

// TestConfigErrors wants every error to name the line and to say how to mend it.
func TestConfigErrors(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"no YAML", "pools: [", "f:1: "},
		{"a tab", "cache:\n\tsize: 1", "f:2: "},
		{"a list for a map", "cache: [1]", "f:1: "},
		{"a word for a list", "pools: gold", "f:1: "},
		{"a word for a number", onePool + oneVolume + ", export: {lun: first}}", "f:3: "},
		{"a word for a truth", onePool + oneVolume + ", thin: perhaps}", "f:3: "},
		{"two documents", "store: files\n---\nstore: memory", "more than one YAML document"},
		{"a key twice", "store: files\nstore: memory", "f:2: "},
		{"an anchor", "portal: &a {listen: 127.0.0.1:1}\nmetrics: *a", "f:1: portal is not plain"},
		{"a pair for a word", "portal: {listen: {a: b}}", "f:1: "},
		{"a number too large", onePool + oneVolume + ", block_size: 4294967808}", "f:3: volumes[0].block_size: \"4294967808\" is not a whole number"},
		{"an unknown key", "\nstor: files", `f:2: unknown key "stor"; did you mean "store"? (line: stor: files)`},
		{"an unknown key deep", "portal:\n  chap:\n    usr: me", `f:3: unknown key "usr" in portal.chap; did you mean "user"?`},
		{"an unknown quoted key", `{"cahce": {"size": 1}}`, `f:1: unknown key "cahce"; did you mean "cache"?`},
		{"a key like no other", "pools:\n  - name: p\n    raid: 6", `f:3: unknown key "raid" in pools[0]; the keys here are name, copy, io_group, mdisks`},
		{"a key one level too deep", onePool + oneVolume + ", export: {lun: 0, removable: true}}", `it belongs to volumes[0]`},
		{"a bad size", "cache: {size: 256MBs}", `f:1: "256MBs" is not a valid size`},
		{"a fraction", "cache: {size: 1.5}", `f:1: "1.5" is not a valid size`},
		{"a small cache", "cache:\n  size: 1MiB", "f:2: a cache of 1MiB is too small; give it at least 4MiB"},
		{"too many I/O groups", "io_groups: 17", "f:1: there cannot be 17 I/O groups; write 1 to 16"},
		{"an I/O group that is not there", "io_groups: 2\npools:\n  - {name: p, io_group: 2, mdisks: [{name: m, size: 1GiB}]}", "f:3: I/O group 2 does not exist; there are 0 to 1"},
		{"I/O groups in a Ceph pool", "io_groups: 2\nstore: rados\nrados: {pool: p}", "f:1: an array in a Ceph pool has one I/O group; leave io_groups out"},
		{"a store", "store: disk", `f:1: store is "disk"; it is one of files, memory, rados`},
		{"no pool", "store: rados", `f:1: store is rados, but there is no pool; add  rados: { pool: NAME }`},
		{"a pool and files", "store: files\nrados: {pool: p}", `f:2: there is a section rados, but the store is files; write store: rados, or leave the section out`},
		{"a log", "store: rados\nrados:\n  pool: p\n  log: remote", `f:4: rados.log is "remote"; it is one of replicated, local`},
		{"a standby without its log", "store: rados\nrados:\n  pool: p\n  log: local\n  standby: true", `f:5: a log that is local is lost with its node, so no other node can take over; write log: replicated, or leave standby out`},
		{"an engine of a pool", "store: rados\nrados: {pool: p}\naio: direct", `f:3: aio is "direct", but mdisks in a pool wait for no disk of this machine`},
		{"a key of a pool", "store: rados\nrados: {pool: p, name: n}", `f:2: unknown key "name" in rados`},
		{"an engine", "store: files\naio: native", `f:2: aio is "native"; it is one of auto, io_uring, direct, threads`},
		{"an engine of memory", "store: memory\naio: threads", `f:2: aio is "threads", but a store in memory waits for no disk; leave it out`},
		{"an address", "portal: {listen: 3260}", `f:1: "3260" is not a valid address; write host:port`},
		{"no portal", "portal: {listen: none}", `f:1: "none" is not a valid address`},
		{"a target", "portal:\n  target: array", `f:2: "array" is not a valid iSCSI name`},
		{"little memory", "portal:\n  memory: 1MiB", `f:2: a portal memory of 1MiB is too small for the longest command and 256KiB for each of 128 sessions; give it at least 96MiB`},
		{"many connections", "portal: {connections: 100000}", `f:1: connections is 100000; it is 1 to 65535`},
		{"a number for a time", "record: {dir: d, interval: 60}", `is not a time such as 30s or 1m`},
		{"a short interval", "record:\n  dir: d\n  interval: 50ms", `f:3: an interval of 50ms is too short; give it 100ms or more`},
		{"files to keep", "record: {dir: d, keep: -1}", `f:1: keep is -1`},
		{"a record without a folder", "record: {keep: 5}", `f:1: record has no folder; add dir`},
		{"no sessions", "portal: {sessions: -1}", `f:1: sessions is -1`},
		{"an initiator", "portal:\n  allow:\n    - iqn.2026-01.a:b\n    - host", `f:4: "host" is not a valid iSCSI name`},
		{"who sets groups", "portal:\n  set_groups: [host]", `f:2: "host" is not a valid iSCSI name`},
		{"CHAP without a secret", "portal: {chap: {user: me}}", "f:1: chap needs user and secret_file"},
		{"CHAP of nobody", "portal: {chap: {initiators: []}}", "f:1: chap needs user and secret_file, or initiators"},
		{"CHAP of no name", "portal:\n  chap:\n    initiators:\n      - {name: host, secret_file: f}", `f:4: "host" is not a valid iSCSI name`},
		{"CHAP of an initiator without a secret", "portal:\n  chap:\n    initiators:\n      - name: iqn.2026-01.a:b\n        user: u", "f:4: initiator iqn.2026-01.a:b has no secret_file; add one"},
		{"CHAP of an initiator twice", "portal:\n  chap:\n    initiators:\n      - {name: iqn.2026-01.a:b, secret_file: f}\n      - {name: IQN.2026-01.a:b, secret_file: g}", "f:5: initiator IQN.2026-01.a:b appears twice; remove one"},
		{"half of an initiator's mutual CHAP", "portal: {chap: {initiators: [{name: iqn.2026-01.a:b, secret_file: f, mutual_secret_file: g}]}}", "f:1: mutual_user and mutual_secret_file go together"},
		{"an unknown key of an initiator", "portal:\n  chap:\n    initiators:\n      - {name: iqn.2026-01.a:b, secret: f}", `f:4: unknown key "secret" in portal.chap.initiators[0]`},
		{"a secret in the place of its file", "portal:\n  chap:\n    user: u\n    secret: hunter2hunter2", "f:4: unknown key \"secret\" in portal.chap; the keys here are user, secret_file, mutual_user, mutual_secret_file, initiators (the line is not shown: it may hold a secret)"},
		{"a password among others", "portal: {chap: {user: u, Password: hunter2hunter2}}", "(the line is not shown: it may hold a secret)"},
		{"a key beside a secret", "portal: {chap: {usr: u, mutual_secret: hunter2hunter2}}", "(the line is not shown: it may hold a secret)"},
		{"a secret's file is shown", "portal:\n  chap: {usr: u, secret_file: there}", "(line: chap: {usr: u, secret_file: there})"},
		{"a byte order mark", "\ufeffstor: files", `f:1: unknown key "stor"; did you mean "store"? (line: stor: files)`},
		{"brackets without end", "pools: " + strings.Repeat("[", 1000), "f:1: brackets are nested more than 100 deep"},
		{"dashes without end", "pools:\n  " + strings.Repeat("- ", 1000), "f:2: dashes are nested more than 100 deep"},
		{"a portal that is not there is preferred", "portal: {listen: \"127.0.0.1:0\", preferred: 2}", "f:1: preferred is 2; it is the number of a portal, 1 to 1, or 0 for none"},
		{"little memory for many sessions", "portal:\n  memory: 96MiB\n  sessions: 200", "f:2: a portal memory of 96MiB is too small"},
		{"half of mutual CHAP", "portal: {chap: {user: me, secret_file: f, mutual_user: you}}", "go together"},
		{"a pool without mdisks", "pools: [{name: p}]", `f:1: pool "p" has no mdisks`},
		{"a pool without a name", "pools: [{copy: data}]", "f:1: a pool has no name"},
		{"a pool twice", "pools:\n  - {name: p, mdisks: [{name: m, size: 1GiB}]}\n  - {name: p, mdisks: [{name: m, size: 1GiB}]}", `f:3: pool "p" appears twice`},
		{"an mdisk without size", "pools: [{name: p, mdisks: [{name: m}]}]", `lacks name or size`},
		{"a copy mode", "pools: [{name: p, copy: fast, mdisks: [{name: m, size: 1G}]}]", `f:1: pools[0].copy is "fast"; it is one of reference, data`},
		{"a volume without a pool", "volumes: [{name: v, size: 1M}]", `volume "v" has no pool`},
		{"a volume without a size", "volumes: [{name: v, pool: p}]", `volume "v" has no size`},
		{"a volume twice", onePool + oneVolume + "}\n  - {name: v, pool: p, size: 1MiB}", `f:4: volume "v" appears twice`},
		{"a block size", onePool + oneVolume + ", block_size: 520}", "f:3: volumes[0].block_size is 520; it is one of 512, 4096"},
		{"an odd size", onePool + "volumes: [{name: v, pool: p, size: 5000}]", "not a multiple of its blocks of 512 bytes"},
		{"a LUN", onePool + oneVolume + ", export: {lun: 16384}}", "f:3: lun is 16384; it is 0 to 16383"},
		{"a negative LUN", onePool + oneVolume + ", export: {lun: -1}}", "f:3: lun is -1"},
		{"a LUN twice", onePool + oneVolume + ", export: {lun: 0}}\n  - {name: w, pool: p, size: 1MiB, export: {lun: 0, initiators: [iqn.2026-01.a:b]}}", `f:4: LUN 0 is volume "v" already`},
	} {
		_, err := ParseConfig("f", []byte(row.text))
		switch {
		case err == nil:
			t.Errorf("%s: was taken", row.name)
		case !strings.Contains(err.Error(), row.want) || strings.ContainsAny(err.Error(), "\n\ufeff") || strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%s: got %q, want one line with %q", row.name, err, row.want)
		}
	}
}

func TestConfigValues(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	text := `data: here
cache: {size: 1G}
portal: {chap: {user: u, secret_file: s}, allow: [iqn.2026-01.a:b]}
pools:
  - name: p
    copy: data
    mdisks:
      - {name: m, size: 1073741824, bandwidth: 10MiB, iops: 7}
volumes:
  - {name: v, pool: p, size: 1MiB, export: {lun: 3, initiators: [IQN.2026-01.A:b]}}
  - {name: w, pool: p, size: "4096", thin: false, block_size: 4096, removable: true, write_protect: true}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	v, w, m := c.Volumes[0], c.Volumes[1], c.Pools[0].Mdisks[0]
	for _, row := range []struct {
		name string
		ok   bool
	}{
		{"data begins at the file", c.Data == filepath.Join(dir, "here")},
		{"so does the secret", c.Portal.CHAP.SecretFile == filepath.Join(dir, "s")},
		{"no secret is no file", c.Portal.CHAP.MutualSecretFile == ""},
		{"the store is files", c.Store == "files"},
		{"its engine is what the kernel gives", c.AIO == "auto"},
		{"the cache", c.Cache.Size == 1<<30},
		{"the portal is on loopback", c.Portal.Listen == "127.0.0.1:3260"},
		{"an mdisk", m.Size == 1<<30 && m.Bandwidth == 10<<20 && m.IOPS == 7},
		{"a volume is thin by default", *v.Thin && !*w.Thin},
		{"blocks have 512 bytes by default", v.BlockSize == 512 && w.BlockSize == 4096},
		{"flags", !v.Removable && w.Removable && w.WriteProtect && !v.WriteProtect},
		{"initiators are folded", v.Export.LUN == 3 && v.Export.Initiators[0] == "iqn.2026-01.a:b"},
		{"no export", w.Export == nil},
	} {
		if !row.ok {
			t.Errorf("%s: it is not so in %+v", row.name, c)
		}
	}
}

func TestEmbeddedConfig(t *testing.T) {
	c := DefaultConfig()
	if len(c.Pools) != 2 || len(c.Volumes) != 5 || !c.Embedded || c.Portal.CHAP != nil {
		t.Errorf("got %+v", c)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(embedded)
	f.Add([]byte(onePool + oneVolume + "}"))
	f.Add([]byte("a: &x {b: *x}"))
	f.Add([]byte("pools: !!map {<<: [1]}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("f", text)
		if err == nil && (c.Store == "" || c.Portal.Listen == "") {
			t.Errorf("taken without defaults: %+v", c)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of two lines: %q", err)
		}
	})
}
