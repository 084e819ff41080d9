package tcmu

import (
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/introspect"
	"github.com/godbus/dbus/v5/prop"
)

// Names by which targetcli and rtslib find who serves TCMU devices. They are those
// of tcmu-runner, which stands for "a daemon that provides this service".
const (
	busName   = "org.kernel.TCMUService1"
	busRoot   = dbus.ObjectPath("/org/kernel/TCMUService1")
	busIface  = "org.kernel.TCMUService1"
	busObject = "org.freedesktop.DBus.ObjectManager"
	busIntro  = "org.freedesktop.DBus.Introspectable"
)

// bus is our place on the system bus; nil is none.
type bus struct{ conn *dbus.Conn }

// dialBus connects and has the objects ready; the name comes later, by own.
func dialBus(subtypes []Subtype) (*bus, error) {
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, fmt.Errorf("tcmu: no D-Bus system bus, through which targetcli finds this service: %w", err)
	}
	b := &bus{conn}
	owner, err := b.owner()
	if err == nil && owner != "" {
		err = fmt.Errorf("tcmu: %w: %s owns the D-Bus name %s; if that is tcmu-runner, run: systemctl disable --now tcmu-runner",
			ErrOtherServer, owner, busName)
	}
	if err == nil {
		err = export(conn, subtypes)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return b, nil
}

// owner describes who has the name, "" if nobody does.
func (b *bus) owner() (string, error) {
	var owned bool
	if err := b.conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, busName).Store(&owned); err != nil {
		return "", fmt.Errorf("tcmu: D-Bus: %w", err)
	}
	if !owned {
		return "", nil
	}
	var pid uint32
	if err := b.conn.BusObject().Call("org.freedesktop.DBus.GetConnectionUnixProcessID", 0, busName).Store(&pid); err != nil {
		return "somebody", nil // who has left in between, or hides
	}
	return fmt.Sprintf("process %d", pid), nil
}

// own takes the name, unless somebody has it.
func (b *bus) own() error {
	if b == nil {
		return nil
	}
	reply, err := b.conn.RequestName(busName, dbus.NameFlagDoNotQueue)
	if err != nil {
		return fmt.Errorf("tcmu: D-Bus name %s (the policy file allows it to root): %w", busName, err)
	}
	if reply != dbus.RequestNameReplyPrimaryOwner {
		return fmt.Errorf("tcmu: %w: the D-Bus name %s is taken", ErrOtherServer, busName)
	}
	return nil
}

func (b *bus) close() {
	if b != nil {
		b.conn.Close()
	}
}

// busSubtype is the object of a subtype.
type busSubtype struct{ subtype Subtype }

// CheckConfig is the D-Bus method: may a device have this configuration string?
func (b busSubtype) CheckConfig(config string) (bool, string, *dbus.Error) {
	if err := checkConfig(b.subtype, config); err != nil {
		return false, err.Error(), nil
	}
	return true, "", nil
}

// checkConfig checks a whole configuration string.
func checkConfig(st Subtype, config string) error {
	if len(config) > MaxConfig {
		return fmt.Errorf("the configuration string has %d bytes; the kernel keeps %d", len(config), MaxConfig)
	}
	if i := strings.IndexAny(config, ",:\n"); i >= 0 {
		return fmt.Errorf("the configuration string has a %q, at which the kernel or targetcli would cut it", config[i])
	}
	subtype, rest := cutConfig(config)
	if subtype != st.Name() {
		return fmt.Errorf("the configuration string begins with %q instead of %q", subtype, st.Name())
	}
	return st.Check(rest)
}

// busManager is the object that lists the subtypes.
type busManager struct{ subtypes []Subtype }

// GetManagedObjects is the D-Bus method: objects, their interfaces, their properties.
func (m busManager) GetManagedObjects() (map[dbus.ObjectPath]map[string]map[string]dbus.Variant, *dbus.Error) {
	out := map[dbus.ObjectPath]map[string]map[string]dbus.Variant{}
	for _, st := range m.subtypes {
		out[subtypePath(st)] = map[string]map[string]dbus.Variant{
			busIface: {"ConfigDesc": dbus.MakeVariant(st.Describe())},
		}
	}
	return out, nil
}

func subtypePath(st Subtype) dbus.ObjectPath { return busRoot + "/" + dbus.ObjectPath(st.Name()) }

// export makes the objects known to a connection.
func export(conn *dbus.Conn, subtypes []Subtype) error {
	root := introspect.Node{Name: string(busRoot), Interfaces: []introspect.Interface{
		introspect.IntrospectData,
		{Name: busObject, Methods: []introspect.Method{
			{Name: "GetManagedObjects", Args: []introspect.Arg{{Name: "objects", Type: "a{oa{sa{sv}}}", Direction: "out"}}},
		}},
	}}
	errs := []error{conn.Export(busManager{subtypes}, busRoot, busObject)}
	for _, st := range subtypes {
		path := subtypePath(st)
		root.Children = append(root.Children, introspect.Node{Name: st.Name()})
		props, err := prop.Export(conn, path, prop.Map{busIface: {
			"ConfigDesc": {Value: st.Describe(), Emit: prop.EmitConst},
		}})
		if err != nil {
			return fmt.Errorf("tcmu: D-Bus: %w", err)
		}
		node := introspect.Node{Name: string(path), Interfaces: []introspect.Interface{
			introspect.IntrospectData, prop.IntrospectData,
			{Name: busIface, Properties: props.Introspection(busIface), Methods: []introspect.Method{
				{Name: "CheckConfig", Args: []introspect.Arg{
					{Name: "configstr", Type: "s", Direction: "in"},
					{Name: "is_valid", Type: "b", Direction: "out"},
					{Name: "message", Type: "s", Direction: "out"},
				}},
			}},
		}}
		errs = append(errs, conn.Export(busSubtype{st}, path, busIface), conn.Export(introspect.NewIntrospectable(&node), path, busIntro))
	}
	errs = append(errs, conn.Export(introspect.NewIntrospectable(&root), busRoot, busIntro))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tcmu: D-Bus: %w", err)
	}
	return nil
}
