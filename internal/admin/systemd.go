// The conventions of systemd for services: sockets that it has opened, word of the state
// (sd_notify(3)), and signs of life (WatchdogSec=). Without systemd's variables none of it does anything.

package admin

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	sd "github.com/coreos/go-systemd/v22/daemon"
)

// Names of passed sockets (FileDescriptorName=). Without names the first is the portal, the second
// the page and metrics.
const (
	portalSocket  = "portal"
	metricsSocket = "metrics"
)

// passedSockets are those that whoever started the daemon has opened for it (LISTEN_FDS). They stand
// for addresses of the configuration, which are not listened on then.
type passedSockets struct {
	portals []net.Listener // for portal.listen and the further ones, in this order
	metrics net.Listener   // nil: none
}

// takeSockets takes the sockets that were passed to this process; they are taken once.
func takeSockets() (s passedSockets, err error) {
	for i, f := range activation.Files(true) {
		name := f.Name()
		if strings.HasPrefix(name, "LISTEN_FD_") && i < 2 {
			name = []string{portalSocket, metricsSocket}[i]
		}
		l, lerr := net.FileListener(f)
		f.Close() // the listener has a descriptor of its own
		switch {
		case lerr != nil:
			err = errors.Join(err, fmt.Errorf("the passed socket %q cannot be used: %w", name, rootCause(lerr)))
		case l.Addr().Network() != "tcp":
			err = errors.Join(err, fmt.Errorf("the passed socket %q is not TCP; give the socket unit a ListenStream= with a port", name))
		case name == portalSocket:
			s.portals = append(s.portals, l)
		case name == metricsSocket && s.metrics == nil:
			s.metrics = l
		default:
			err = errors.Join(err, fmt.Errorf("nothing listens on a passed socket %q; set FileDescriptorName= to %s, or to %s for one of them", name, portalSocket, metricsSocket))
		}
	}
	return s, err
}

// notify tells systemd about the service's state, as lines of sd_notify(3). What others have named, such as their hosts, is no
// line of its own. That systemd cannot be told is said once.
func (d *daemon) notify(state ...string) {
	lines := make([]string, len(state))
	for i := range state {
		lines[i] = Printable(state[i])
	}
	if _, err := sd.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		d.unheard.Do(func() {
			d.log.Warn("systemd cannot be notified", "socket", os.Getenv("NOTIFY_SOCKET"), "error", err)
		})
	}
}

// notifyReady says that hosts are served, and where.
func (d *daemon) notifyReady() {
	var at []string
	if d.portalAddr != nil {
		at = append(at, "iSCSI on "+d.portalAddr.String())
	}
	if d.kernel != nil {
		at = append(at, "TCMU")
	}
	d.notify("READY=1", "STATUS=Serving "+strings.Join(at, " and "))
}

// startWatchdog gives systemd a sign of life each time that the executor has answered, twice per
// WatchdogSec=. It begins when the daemon is ready; the function that it returns ends it and waits
// for that, and does nothing when called again.
func (d *daemon) startWatchdog() (end func()) {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("the watchdog is off", "error", err)
	}
	if limit == 0 {
		return func() {}
	}
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { d.signsOfLife(limit/2, quit) })
	return sync.OnceFunc(func() {
		close(quit)
		running.Wait()
	})
}

func (d *daemon) signsOfLife(every time.Duration, quit <-chan struct{}) {
	t := time.NewTicker(every)
	defer t.Stop()
	var answer <-chan struct{} // of the question under way: there is one at a time
	for {
		if answer == nil {
			answer = d.askExecutors()
		}
		select {
		case <-answer:
			d.notify("WATCHDOG=1")
			answer = nil
		case <-t.C:
			d.log.Warn("an executor does not answer, so the watchdog is not notified", "after", every)
			continue
		case <-quit:
			return
		}
		select {
		case <-t.C:
		case <-quit:
			return
		}
	}
}

// askExecutors returns a channel that is closed when each executor has let somebody in and has run a
// timer since: what holds one, or keeps its goroutine from timers, keeps commands from their end.
func (d *daemon) askExecutors() <-chan struct{} {
	answer := make(chan struct{})
	go func() {
		for _, g := range d.groups {
			end := make(chan struct{})
			g.exec.Lock()
			g.exec.At(g.exec.Now(), func() { close(end) })
			g.exec.Unlock()
			<-end
		}
		close(answer)
	}()
	return answer
}
