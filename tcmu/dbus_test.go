package tcmu

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

// peer is one end of a D-Bus connection without a bus: it answers the
// authentication that a client begins with, and is a plain pipe afterwards.
type peer struct {
	net.Conn
	begun   bool
	answers bytes.Buffer
}

func (p *peer) Write(b []byte) (int, error) {
	if p.begun {
		return p.Conn.Write(b)
	}
	for _, line := range strings.Split(string(b), "\r\n") {
		switch line = strings.TrimPrefix(line, "\x00"); {
		case line == "BEGIN":
			p.begun = true
		case line == "AUTH":
			p.answers.WriteString("REJECTED ANONYMOUS\r\n")
		case strings.HasPrefix(line, "AUTH "):
			p.answers.WriteString("OK 0123456789abcdef0123456789abcdef\r\n")
		case line == "NEGOTIATE_UNIX_FD":
			p.answers.WriteString("ERROR\r\n")
		}
	}
	return len(b), nil
}

func (p *peer) Read(b []byte) (int, error) {
	if p.answers.Len() > 0 {
		return p.answers.Read(b)
	}
	if !p.begun {
		return 0, io.ErrUnexpectedEOF
	}
	return p.Conn.Read(b)
}

func connect(t *testing.T) (server, client *dbus.Conn) {
	t.Helper()
	a, b := net.Pipe()
	var conns []*dbus.Conn
	for _, c := range []net.Conn{a, b} {
		conn, err := dbus.NewConn(&peer{Conn: c})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.Auth([]dbus.Auth{dbus.AuthAnonymous()}); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	return conns[0], conns[1]
}

// TestDBus makes the calls that targetcli makes.
func TestDBus(t *testing.T) {
	w := newWorld(t)
	server, client := connect(t)
	if err := export(server, []Subtype{testSubtype{w}, named{testSubtype{w}, "other"}}); err != nil {
		t.Fatal(err)
	}
	var objects map[dbus.ObjectPath]map[string]map[string]dbus.Variant
	if err := client.Object(busName, "/org/kernel/TCMUService1").Call("org.freedesktop.DBus.ObjectManager.GetManagedObjects", 0).Store(&objects); err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects["/org/kernel/TCMUService1/test"]["org.kernel.TCMUService1"]["ConfigDesc"].Value() != "what it shall do" {
		t.Errorf("objects: %v", objects)
	}
	object := client.Object(busName, "/org/kernel/TCMUService1/test")
	if v, err := object.GetProperty("org.kernel.TCMUService1.ConfigDesc"); err != nil || v.Value() != "what it shall do" {
		t.Errorf("ConfigDesc: %v, %v", v, err)
	}
	var all map[string]dbus.Variant
	if err := object.Call("org.freedesktop.DBus.Properties.GetAll", 0, "org.kernel.TCMUService1").Store(&all); err != nil || len(all) != 1 {
		t.Errorf("GetAll: %v, %v", all, err)
	}
	var text string
	if err := object.Call("org.freedesktop.DBus.Introspectable.Introspect", 0).Store(&text); err != nil || !strings.Contains(text, "CheckConfig") {
		t.Errorf("introspection: %v, %s", err, text)
	}
	for _, row := range []struct {
		name, config string
		ok           bool
		says         string
	}{
		{"good", "test/good", true, ""},
		{"the handler refuses it", "test/bad", false, "bad is no good"},
		{"as long as it may be", "test/" + strings.Repeat("x", 250), true, ""},
		{"too long", "test/" + strings.Repeat("x", 251), false, "256 bytes"},
		{"a comma", "test/a,b", false, `','`},
		{"a colon", "test/a:b", false, `':'`},
		{"a line break", "test/a\nb", false, "cut"},
		{"another subtype", "other/a", false, `"other"`},
		{"nothing", "", false, `""`},
	} {
		var ok bool
		var message string
		if err := object.Call("org.kernel.TCMUService1.CheckConfig", 0, row.config).Store(&ok, &message); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if ok != row.ok || !strings.Contains(message, row.says) || ok && message != "" {
			t.Errorf("%s: got %t, %q", row.name, ok, message)
		}
	}
	if err := object.Call("org.kernel.TCMUService1.CheckConfig", 0).Err; err == nil {
		t.Error("a call without arguments was taken")
	}
}
