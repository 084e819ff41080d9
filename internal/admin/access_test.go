package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/iscsi"
)

const (
	tenantA   = "iqn.2026-01.host:a"
	tenantB   = "iqn.2026-01.host:b"
	stranger  = "iqn.2026-01.host:c"
	ofTenants = `
store: memory
cache: {size: 8MiB}
portal:
  listen: "127.0.0.1:0"
  chap:
    COMMON
    initiators:
      - {name: iqn.2026-01.host:a, secret_file: DIR/a, mutual_user: array, mutual_secret_file: DIR/m}
      - {name: IQN.2026-01.host:B, user: bob, secret_file: DIR/b}
metrics: {listen: none}
pools: [{name: p, mdisks: [{name: m, size: 1GiB}]}]
volumes:
  - {name: va, pool: p, size: 16MiB, export: {lun: 1, initiators: [iqn.2026-01.host:a]}}
  - {name: vb, pool: p, size: 16MiB, export: {lun: 2, initiators: [iqn.2026-01.host:b]}}
  - {name: vc, pool: p, size: 16MiB, export: {lun: 3}}
`
)

// secrets writes secret files and returns a configuration that names them.
func secrets(t *testing.T, common string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(strings.Replace(ofTenants, "COMMON", common, 1), "DIR", dir)
}

// TestTenants: the names by which LUNs are masked are those that were proved, with secrets from the
// configuration; without one nobody learns what there is.
func TestTenants(t *testing.T) {
	a := &iscsi.CHAP{User: tenantA, Secret: []byte("the secret of tenant a"), MutualUser: "array", MutualSecret: []byte("the array's own secret")}
	b := &iscsi.CHAP{User: "bob", Secret: []byte("the secret of tenant b")}
	all := &iscsi.CHAP{User: "all", Secret: []byte("the secret of all others")}
	r := start(t, parse(t, secrets(t, "user: all\n    secret_file: DIR/all", map[string]string{
		"a": string(a.Secret), "b": string(b.Secret), "m": string(a.MutualSecret), "all": string(all.Secret)}), t.TempDir()))
	login := func(name, target string, chap *iscsi.CHAP) (*iscsi.Client, error) {
		nc, err := net.Dial("tcp", r.d.portalAddr.String())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { nc.Close() })
		return iscsi.NewClient(nc, iscsi.ClientConfig{Initiator: name, Target: target, CHAP: chap, ISID: [6]byte{0x80, 1}})
	}
	for _, row := range []struct {
		what, name string
		chap       *iscsi.CHAP
		luns       []byte // nil: no login
	}{
		{"a, in both directions", tenantA, a, []byte{1, 3}},
		{"b", tenantB, b, []byte{2, 3}},
		{"a stranger with the common secret", stranger, all, []byte{3}},
		{"b under the name of a", tenantA, b, nil},
		{"the common secret under the name of a", tenantA, all, nil},
		{"a without a password", tenantA, nil, nil},
		{"a stranger without a password", stranger, nil, nil},
	} {
		for _, target := range []string{r.d.cfg.Portal.Target, ""} {
			c, err := login(row.name, target, row.chap)
			if refused := new(iscsi.LoginError); row.luns == nil {
				if !errors.As(err, &refused) || refused.Status != 0x0201 {
					t.Errorf("%s, target %q: %v", row.what, target, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s, target %q: %v", row.what, target, err)
				continue
			}
			if target == "" {
				if list, err := c.SendTargets(); err != nil || len(list) != 1 {
					t.Errorf("%s: discovery says %v, %v", row.what, list, err)
				}
				continue
			}
			res, err := c.Command(0, []byte{0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, nil, 256)
			if err != nil || res.Status != 0 || len(res.Data) < 8 {
				t.Fatalf("%s: REPORT LUNS: %+v, %v", row.what, res, err)
			}
			var luns []byte
			for at := 8; at+8 <= len(res.Data); at += 8 {
				luns = append(luns, res.Data[at+1])
			}
			if !slices.Equal(luns, row.luns) {
				t.Errorf("%s sees LUNs %v, want %v", row.what, luns, row.luns)
			}
		}
	}
	for _, s := range []*iscsi.CHAP{a, b, all} {
		if strings.Contains(r.out.String(), string(s.Secret)) {
			t.Error("a secret is in the log")
		}
	}
}

// TestSecretsOfTwo: secrets that open two doors are refused at the start, in a line that tells
// none.
func TestSecretsOfTwo(t *testing.T) {
	for _, row := range []struct {
		what, common string
		files        map[string]string
		says         string
	}{
		{"two initiators", "", map[string]string{"a": "one for both of us", "b": "one for both of us", "m": "mmmmmmmmmmmm"}, "same secret; give each its own"},
		{"an initiator and all others", "user: u\n    secret_file: DIR/b", map[string]string{"a": "aaaaaaaaaaaa", "b": "one for both of us", "m": "mmmmmmmmmmmm"}, "same secret; give each its own"},
		{"an initiator and the target", "", map[string]string{"a": "aaaaaaaaaaaa", "b": "one for both of us", "m": "one for both of us"}, "authenticates itself with the secret of"},
		{"a file that is not there", "", map[string]string{"a": "aaaaaaaaaaaa", "b": "bbbbbbbbbbbb"}, "write the secret into that file with mode 600"},
	} {
		cfg := parse(t, secrets(t, row.common, row.files), t.TempDir())
		out := &logBuffer{}
		err := Serve(context.Background(), cfg, Environment{Out: out, Log: slog.New(slog.NewTextHandler(out, nil))})
		if err == nil || !strings.Contains(err.Error(), row.says) || strings.Contains(fmt.Sprint(err, out), "one for both of us") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line with %q", row.what, err, row.says)
		}
	}
}
