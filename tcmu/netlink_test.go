package tcmu

import (
	"errors"
	"fmt"
	"reflect"
	"syscall"
	"testing"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
)

// message builds what the kernel multicasts.
func message(t *testing.T, cmd uint8, fill func(*netlink.AttributeEncoder)) genetlink.Message {
	t.Helper()
	ae := netlink.NewAttributeEncoder()
	if fill != nil {
		fill(ae)
	}
	b, err := ae.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return genetlink.Message{Header: genetlink.Header{Command: cmd, Version: 2}, Data: b}
}

func TestParseEvent(t *testing.T) {
	device := func(ae *netlink.AttributeEncoder) {
		ae.String(1, "tcm-user/0/lun/array/gold/db")
		ae.Uint32(2, 7)
		ae.Uint32(8, 99)
	}
	config, size, cache := "array/gold/other", uint64(1)<<40, true
	for _, row := range []struct {
		name string
		msg  genetlink.Message
		want event
		ok   bool
	}{
		{"added", message(t, 1, device), event{cmd: 1, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db"}, true},
		{"removed", message(t, 2, device), event{cmd: 2, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db"}, true},
		{"new configuration", message(t, 3, func(ae *netlink.AttributeEncoder) { device(ae); ae.String(4, config) }),
			event{cmd: 3, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db", change: Change{Config: &config}}, true},
		{"new size", message(t, 3, func(ae *netlink.AttributeEncoder) { device(ae); ae.Uint64(5, size) }),
			event{cmd: 3, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db", change: Change{Size: &size}}, true},
		{"write cache", message(t, 3, func(ae *netlink.AttributeEncoder) { device(ae); ae.Uint8(6, 1) }),
			event{cmd: 3, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db", change: Change{WriteCache: &cache}}, true},
		{"an attribute of a later kernel", message(t, 1, func(ae *netlink.AttributeEncoder) { device(ae); ae.Uint32(40, 1) }),
			event{cmd: 1, id: 99, minor: 7, name: "tcm-user/0/lun/array/gold/db"}, true},
		{"an answer of somebody's", message(t, 4, device), event{}, false},
		{"a command of a later kernel", message(t, 9, device), event{}, false},
		{"no device", message(t, 1, func(ae *netlink.AttributeEncoder) { ae.Uint32(8, 1) }), event{}, false},
		{"no number to answer to", message(t, 1, func(ae *netlink.AttributeEncoder) { ae.String(1, "tcm-user/0/x") }), event{}, false},
		{"an attribute of the wrong length", message(t, 1, func(ae *netlink.AttributeEncoder) { device(ae); ae.Uint8(5, 1) }), event{}, false},
		{"an attribute that is cut off", genetlink.Message{Header: genetlink.Header{Command: 1}, Data: []byte{200, 0, 1, 0}}, event{}, false},
	} {
		got, err := parseEvent(row.msg)
		if (err == nil) != row.ok || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: got %+v, %v; want %+v", row.name, got, err, row.want)
		}
	}
}

func TestParseName(t *testing.T) {
	for _, row := range []struct {
		name string
		want Info
		ok   bool
	}{
		{"tcm-user/3/lun0/array/gold/db/thick=1", Info{HBA: "3", Name: "lun0", Subtype: "array", Config: "gold/db/thick=1"}, true},
		{"tcm-user/0/a/ram/", Info{HBA: "0", Name: "a", Subtype: "ram"}, true},
		{"tcm-user/0/a/ram", Info{HBA: "0", Name: "a", Subtype: "ram"}, true},
		{"tcm-user/0/a", Info{HBA: "0", Name: "a"}, true},
		{"tcm-user/0/", Info{}, false},
		{"tcm-user/x/a/ram/", Info{}, false},
		{"tcm-user/0/../ram/", Info{}, false},
		{"tcm-user//a/ram/", Info{}, false},
		{"uio_pci_generic", Info{}, false},
		{"", Info{}, false},
	} {
		got, ok := parseName(row.name)
		if !row.ok {
			got = Info{}
		}
		if ok != row.ok || got != row.want {
			t.Errorf("%q: got %+v, %t; want %+v, %t", row.name, got, ok, row.want, row.ok)
		}
	}
}

func TestErrno(t *testing.T) {
	for _, row := range []struct {
		err  error
		want int32
	}{
		{nil, 0},
		{errors.New("no"), -22},
		{fmt.Errorf("full: %w", syscall.ENOSPC), -28},
		{errors.Join(errors.New("x"), syscall.EBUSY), -16},
		{fmt.Errorf("zero: %w", syscall.Errno(0)), -22},
	} {
		if got := errno(row.err); got != row.want {
			t.Errorf("%v: got %d, want %d", row.err, got, row.want)
		}
	}
}

// TestAnswers holds what goes to the kernel.
func TestAnswers(t *testing.T) {
	for _, row := range []struct {
		name string
		do   func(*genl) error
		cmd  uint8
		want map[uint16]int64
	}{
		{"added, good", func(g *genl) error { return g.reply(event{cmd: 1, id: 5}, 0) }, 4, map[uint16]int64{7: 0, 8: 5}},
		{"removed, good", func(g *genl) error { return g.reply(event{cmd: 2, id: 1 << 31}, 0) }, 5, map[uint16]int64{7: 0, 8: 1 << 31}},
		{"change refused", func(g *genl) error { return g.reply(event{cmd: 3, id: 0}, -22) }, 6, map[uint16]int64{7: -22, 8: 0}},
		{"features", func(g *genl) error { return g.features(1) }, 7, map[uint16]int64{9: 1}},
		{"no features", func(g *genl) error { return g.unsubscribe() }, 7, map[uint16]int64{9: 0}},
	} {
		got := map[uint16]int64{}
		conn := genltest.Dial(func(m genetlink.Message, h netlink.Message) ([]genetlink.Message, error) {
			ad, err := netlink.NewAttributeDecoder(m.Data)
			if err != nil {
				return nil, err
			}
			for ad.Next() {
				switch ad.Type() {
				case 7:
					got[7] = int64(ad.Int32())
				case 9:
					got[9] = int64(ad.Uint8())
				default:
					got[ad.Type()] = int64(ad.Uint32())
				}
			}
			if m.Header.Version != 2 || m.Header.Command != row.cmd || h.Header.Type != 33 ||
				h.Header.Flags != netlink.Request|netlink.Acknowledge {
				t.Errorf("%s: sent %+v in %+v", row.name, m.Header, h.Header)
			}
			return []genetlink.Message{{}}, ad.Err() // stands for the acknowledgement
		})
		g := &genl{answers: conn, family: genetlink.Family{ID: 33}}
		if err := row.do(g); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s: got %v, want %v", row.name, got, row.want)
		}
		conn.Close()
	}
}

// TestReceive: what is not the family's is left out.
func TestReceive(t *testing.T) {
	added := message(t, 1, func(ae *netlink.AttributeEncoder) { ae.String(1, "tcm-user/0/x/ram/"); ae.Uint32(8, 3) })
	conn := genltest.Dial(func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
		return []genetlink.Message{added, message(t, 9, nil)}, nil
	})
	defer conn.Close()
	// The fake sends with type 0, which stands for the family here.
	g := &genl{events: conn}
	got, err := g.receive()
	if err != nil || len(got) != 1 || got[0].id != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
	g.family.ID = 20
	if got, err := g.receive(); err != nil || len(got) != 0 {
		t.Errorf("from another family: got %+v, %v", got, err)
	}
}

func TestConfigGroup(t *testing.T) {
	group := []genetlink.MulticastGroup{{ID: 4, Name: "other"}, {ID: 6, Name: "config"}}
	for _, row := range []struct {
		name string
		f    genetlink.Family
		want uint32
		ok   bool
	}{
		{"as Linux has it", genetlink.Family{Version: 2, Groups: group}, 6, true},
		{"a later version", genetlink.Family{Version: 3, Groups: group}, 6, true},
		{"before answers", genetlink.Family{Version: 1, Groups: group}, 0, false},
		{"no such group", genetlink.Family{Version: 2, Groups: group[:1]}, 0, false},
	} {
		if got, err := configGroup(row.f); got != row.want || (err == nil) != row.ok {
			t.Errorf("%s: got %d, %v", row.name, got, err)
		}
	}
}
