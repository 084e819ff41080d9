package admin

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A volume that cannot be exported as asked is not made.
func TestVolumeWithTakenLUN(t *testing.T) {
	r := start(t, parse(t, testConfig, t.TempDir()))
	ctx := t.Context()
	for _, row := range []struct {
		name, want string
		export     NewExport
	}{
		{"a LUN that is taken", `LUN 0 is volume "v" already`, NewExport{LUN: 0}},
		{"a LUN that is none", "a LUN is 0 to 16383", NewExport{LUN: -1}},
		{"a name that is none", "not a valid iSCSI name", NewExport{LUN: 7, Initiators: []string{"host"}}},
	} {
		_, err := r.CreateVolume(ctx, NewVolume{Name: "n", Pool: "gold", Size: 1 << 20, Export: &row.export})
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", row.name, err)
		}
		if _, err := r.Volume(ctx, "n"); err == nil {
			t.Errorf("%s: the volume is there", row.name)
		}
	}
	v, err := r.CreateVolume(ctx, NewVolume{Name: "n", Pool: "gold", Size: 1 << 20, Export: &NewExport{LUN: 7}})
	if err != nil || len(v.Exports) != 1 || v.Exports[0].LUN != 7 {
		t.Errorf("%+v, %v", v, err)
	}
}

// A volume that has the name of another does not have its sums.
func TestRecreatedVolumeCountsFromZero(t *testing.T) {
	c := parse(t, testConfig, t.TempDir())
	r := start(t, c)
	ctx := t.Context()
	count := func() VolumeCounters {
		t.Helper()
		all, err := r.Counters(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all.Volumes {
			if v.Volume == "again" {
				return v
			}
		}
		t.Fatal("the volume is not counted")
		return VolumeCounters{}
	}
	create := func() {
		t.Helper()
		if _, err := r.CreateVolume(ctx, NewVolume{Name: "again", Pool: "gold", Size: 4 << 20, Export: &NewExport{LUN: 9}}); err != nil {
			t.Fatal(err)
		}
	}
	create()
	r.write("again", 0, pattern(t, 1<<20))
	r.testUnitReady("iqn.2026-01.host:a", 9)
	if v := count(); sum(v.Admitted) != 1<<20 || v.Commands == 0 {
		t.Fatalf("the first one: %+v", v)
	}
	if err := r.DeleteVolume(ctx, "again", true); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			r.stop()
			r = start(t, parse(t, testConfig, c.Data))
		} else {
			create()
		}
		if v := count(); sum(v.Admitted) != 0 || v.Commands != 0 {
			t.Errorf("restart %v: the second one begins with %+v", restart, v)
		}
	}
}

// A daemon whose port is taken, or that is told nonsense, makes no data folder.
func TestFailedStartMakesNoFolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := other.Addr().String()
	other.Close()
	secrets := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secrets, []byte("the same secret of both\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"the portal's port":  func(c *Config) { c.Portal.Listen = l.Addr().String() },
		"a further portal's": func(c *Config) { c.Portal.Further = []string{l.Addr().String()} },
		"a port twice":       func(c *Config) { c.Portal.Listen, c.Metrics.Listen = free, free },
		"the metrics' port":  func(c *Config) { c.Metrics.Listen = l.Addr().String() },
		"the volumes shown":  func(c *Config) { c.Metrics.Volumes = "some" },
		"the profile":        func(c *Config) { c.Profile = "no-such-profile" },
		"no secret":          func(c *Config) { c.Portal.CHAP = &CHAPConfig{User: "u", SecretFile: secrets + "none"} },
		"one secret for two": func(c *Config) {
			c.Portal.CHAP = &CHAPConfig{User: "u", SecretFile: secrets, MutualUser: "m", MutualSecretFile: secrets}
		},
	} {
		data := filepath.Join(t.TempDir(), "d")
		c := parse(t, testConfig, data)
		change(c)
		out := &logBuffer{}
		if err := Serve(t.Context(), c, Environment{Out: out, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%s: it runs", name)
		}
		if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder was made: %v", name, err)
		}
	}
}

func TestReachable(t *testing.T) {
	for in, want := range map[string]string{"0.0.0.0:9": "127.0.0.1:9", "127.0.0.2:9": "127.0.0.2:9", "[::1]:9": "[::1]:9"} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := reachable(a); got != want {
			t.Errorf("%s is reached at %s, want %s", in, got, want)
		}
	}
	// What is said of a listener on all addresses leads to it.
	for _, addr := range []string{"0.0.0.0:0", "[::]:0"} {
		l, err := listenTCP("it", "nothing", addr)
		if err != nil {
			t.Log(err) // a machine without IPv6
			continue
		}
		c, err := net.Dial("tcp", reachable(l.Addr()))
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		c.Close()
		l.Close()
	}
}
