package tcmu

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
)

// receiveBuffer is room for the events of some thousand devices: an event that is
// lost leaves the process that caused it waiting for ever.
const receiveBuffer = 4 << 20

// event is what the kernel says of a device. It waits for the answer unless the
// device was made with nl_reply_supported=-1.
type event struct {
	cmd    uint8
	id     uint32 // what the answer is for
	minor  uint32
	name   string // of the UIO device
	change Change // with cmdReconfig
}

// messenger is the netlink side, which tests replace.
type messenger interface {
	// subscribe begins to collect events, and tells the kernel that they are answered.
	subscribe() error
	// unsubscribe tells it the contrary. Events that were sent can still be received.
	unsubscribe() error
	receive() ([]event, error)
	// deadline has receive fail with os.ErrDeadlineExceeded from then on.
	deadline(time.Time) error
	// reply answers an event: status is 0 or a negative errno.
	reply(e event, status int32) error
	close() error
}

// genl is the messenger of a real kernel. Events and answers have sockets of their own,
// so that an event cannot come between an answer and its acknowledgement.
type genl struct {
	events, answers *genetlink.Conn
	family          genetlink.Family
	group           uint32
}

func dialKernel() (messenger, error) {
	answers, err := genetlink.Dial(nil)
	if err != nil {
		return nil, fmt.Errorf("tcmu: generic netlink: %w", err)
	}
	family, err := answers.GetFamily(familyName)
	if err != nil {
		answers.Close()
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("tcmu: this kernel has no TCMU; run: modprobe target_core_user")
		}
		return nil, fmt.Errorf("tcmu: netlink family %s: %w", familyName, err)
	}
	group, err := configGroup(family)
	if err != nil {
		answers.Close()
		return nil, err
	}
	events, err := genetlink.Dial(nil)
	if err != nil {
		answers.Close()
		return nil, fmt.Errorf("tcmu: generic netlink: %w", err)
	}
	return &genl{events, answers, family, group}, nil
}

func configGroup(f genetlink.Family) (uint32, error) {
	if f.Version < familyVersion {
		return 0, fmt.Errorf("tcmu: netlink family %s has version %d; %d is needed: use Linux 4.16 or later", familyName, f.Version, familyVersion)
	}
	for _, g := range f.Groups {
		if g.Name == groupName {
			return g.ID, nil
		}
	}
	return 0, fmt.Errorf("tcmu: netlink family %s has no group %q", familyName, groupName)
}

func (g *genl) subscribe() error {
	// With its privileges the process may exceed the system's limit of buffers.
	if err := g.events.SetReadBuffer(receiveBuffer); err != nil {
		return fmt.Errorf("tcmu: netlink receive buffer: %w", err)
	}
	if err := g.events.SetOption(netlink.NoENOBUFS, true); err != nil {
		return fmt.Errorf("tcmu: netlink option: %w", err)
	}
	if err := g.events.JoinGroup(g.group); err != nil {
		return fmt.Errorf("tcmu: joining the netlink group of %s (needs CAP_NET_ADMIN): %w", familyName, err)
	}
	return g.features(1)
}

func (g *genl) unsubscribe() error { return g.features(0) }

func (g *genl) features(reply uint8) error {
	ae := netlink.NewAttributeEncoder()
	ae.Uint8(attrReplySupported, reply)
	if err := g.send(cmdSetFeatures, ae); err != nil {
		return fmt.Errorf("tcmu: telling the kernel whether events are answered: %w", err)
	}
	return nil
}

func (g *genl) deadline(t time.Time) error { return g.events.SetReadDeadline(t) }

func (g *genl) send(cmd uint8, ae *netlink.AttributeEncoder) error {
	data, err := ae.Encode()
	if err != nil {
		return err
	}
	m := genetlink.Message{Header: genetlink.Header{Command: cmd, Version: familyVersion}, Data: data}
	_, err = g.answers.Execute(m, g.family.ID, netlink.Request|netlink.Acknowledge)
	return err
}

func (g *genl) receive() ([]event, error) {
	msgs, headers, err := g.events.Receive()
	if err != nil {
		return nil, err
	}
	var list []event
	for i, m := range msgs {
		if i < len(headers) && uint16(headers[i].Header.Type) != g.family.ID {
			continue
		}
		if e, err := parseEvent(m); err == nil {
			list = append(list, e)
		}
	}
	return list, nil
}

func (g *genl) reply(e event, status int32) error {
	ae := netlink.NewAttributeEncoder()
	ae.Int32(attrStatus, status)
	ae.Uint32(attrDeviceID, e.id)
	return g.send(e.cmd+cmdDone, ae)
}

func (g *genl) close() error { return errors.Join(g.events.Close(), g.answers.Close()) }

// parseEvent decodes a message of the kernel's.
func parseEvent(m genetlink.Message) (event, error) {
	e := event{cmd: m.Header.Command}
	if e.cmd < cmdAdded || e.cmd > cmdReconfig {
		return event{}, fmt.Errorf("tcmu: netlink command %d", e.cmd)
	}
	ad, err := netlink.NewAttributeDecoder(m.Data)
	if err != nil {
		return event{}, err
	}
	identified := false
	for ad.Next() {
		switch ad.Type() {
		case attrDevice:
			e.name = ad.String()
		case attrMinor:
			e.minor = ad.Uint32()
		case attrDeviceID:
			e.id = ad.Uint32()
			identified = true
		case attrConfig:
			v := ad.String()
			e.change.Config = &v
		case attrSize:
			v := ad.Uint64()
			e.change.Size = &v
		case attrWriteCache:
			v := ad.Uint8() != 0
			e.change.WriteCache = &v
		}
	}
	if err := ad.Err(); err != nil {
		return event{}, err
	}
	if e.name == "" || !identified {
		return event{}, errors.New("tcmu: netlink message names no device")
	}
	return e, nil
}

// errno is what the kernel gets for an error.
func errno(err error) int32 {
	if err == nil {
		return 0
	}
	var n syscall.Errno
	if errors.As(err, &n) && n != 0 {
		return -int32(n)
	}
	return -int32(syscall.EINVAL)
}
