package tier

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arraysim/arraysim/internal/block"
)

// Mode is what a disk uses its flash for.
type Mode uint8

// Modes, in the order of how much they do.
const (
	Off Mode = iota
	WriteThrough
	WriteBack
)

var modeNames = [...]string{"off", "write_through", "write_back"}

func (m Mode) String() string { return modeNames[m] }

// Policy is what somebody wants of a disk.
type Policy struct {
	Mode Mode
	// Peers and External are the number of peers, in the disk's own fault domain and in
	// other ones, that must have a write before it is acknowledged from flash.
	Peers, External int
	// NoPopulation keeps reads and writes through from filling the cache.
	NoPopulation bool
}

func (p Policy) String() string {
	s := p.Mode.String()
	if p.Mode == WriteBack && p.Peers+p.External > 0 {
		s += fmt.Sprintf("+%d", p.Peers)
		if p.External > 0 {
			s += fmt.Sprintf("+%d", p.External)
		}
	}
	return s
}

// ParsePolicy reads what String writes: off, write_through, write_back, and write_back+N or
// write_back+N+M with N peers and M external ones. Hyphens and the short names wt and wb
// are taken too.
func ParsePolicy(s string) (p Policy, err error) {
	name, peers, some := strings.Cut(strings.ReplaceAll(s, "-", "_"), "+")
	switch name {
	case "off":
	case "write_through", "wt":
		p.Mode = WriteThrough
	case "write_back", "wb":
		p.Mode = WriteBack
	default:
		return p, fmt.Errorf("no policy is named %q; choose off, write_through, write_back or write_back+PEERS", s)
	}
	if !some {
		return p, nil
	}
	n, m, two := strings.Cut(peers, "+")
	if _, err = fmt.Sscanf(n, "%d", &p.Peers); err == nil && two {
		_, err = fmt.Sscanf(m, "%d", &p.External)
	}
	if err != nil || p.Mode != WriteBack || p.Peers < 0 || p.External < 0 || p.Peers+p.External > maxPeers || p.String() != "write_back+"+peers {
		return Policy{}, fmt.Errorf("%q is not a valid policy; with peers it is write_back+N, such as write_back+1", s)
	}
	return p, nil
}

const maxPeers = 8

// Peer is the flash of another host, which keeps a copy of what is dirty here.
type Peer struct {
	Name string
	// Domain is the peer's fault domain; External peers are those of another one than the
	// disk's, which is "".
	Domain string
	Medium block.Medium
}

type policyState struct {
	requested Policy
	effective Mode
	accepting bool // writes end on flash
	holds     []quiesce
	lastToken uint64
	waiters   []waiter
	reviewing bool
	emptying  int // times that the cache is being emptied; see empty
}

type quiesce struct {
	token uint64
	until int64
}

// waiter hears when the disk is clean, or has what was requested. One of a quiesce hears of the end
// of that as well.
type waiter struct {
	clean bool
	token uint64
	fn    func()
}

// State is what a disk does now.
type State struct {
	Requested Policy
	Effective Mode
	// Why says in a few words why the two differ; "" if they do not.
	Why       string
	Peers     []string // that have all dirty data
	LostPeers []string
	LeftAlone []string // peers of which the flash is another cache's, or may be, and why
	FlashLost bool
	// Unmarked: a flash was left out, and there was nobody to record it. It must not be used
	// again without a format.
	Unmarked     bool
	Quiesced     int // tokens that are held
	DirtySectors uint64
	AreaSectors  uint64
	Throttled    bool
	// Unsure: the device below has not answered what others have changed, so nothing clean is served.
	Unsure bool
	// TimeToDestage is how long the destager would take for what is dirty, in nanoseconds.
	TimeToDestage int64
	// Assumed: nothing was destaged so far, and TimeToDestage is reckoned with an assumed time of a destage.
	Assumed  bool
	SANNanos *int64 // moving average of a destage's time below; nil before the first
	Damaged  uint64
	Eviction string
}

// State returns the present state.
func (d *Disk) State() State {
	s := State{Requested: d.requested, Effective: d.effective, Why: d.why(), FlashLost: !d.flashed(), Unmarked: d.marks.unmarked, Quiesced: len(d.holds),
		DirtySectors: d.occupied(), AreaSectors: d.throttle.area, Throttled: d.throttle.above(d.occupied()), Unsure: d.generation.unsure,
		TimeToDestage: d.timeToDestage(), Eviction: d.ix.Policy()}
	if san := d.throttle.san; san > 0 {
		s.SANNanos = new(san)
	} else {
		s.Assumed = s.TimeToDestage > 0
	}
	for _, m := range d.members[1:] {
		switch {
		case m.state == memberLost:
			s.LostPeers = append(s.LostPeers, m.peer.Name)
			if m.alone != "" {
				s.LeftAlone = append(s.LeftAlone, m.peer.Name+": "+m.alone)
			}
		case m.state == memberPresent || m.state == memberFailing:
			s.Peers = append(s.Peers, m.peer.Name)
		}
	}
	for _, r := range d.damaged {
		s.Damaged += r.Count
	}
	return s
}

func (d *Disk) why() string {
	switch {
	case d.effective == d.requested.Mode && d.accepting == (d.requested.Mode == WriteBack):
		return ""
	case !d.flashed():
		return "the flash device is lost"
	case len(d.holds) > 0 && d.effective == WriteBack:
		return "quiesce: dirty data is being destaged"
	case len(d.holds) > 0:
		return "quiesced"
	case d.requested.Mode == WriteBack && d.opt.Volatile:
		return "the cache is volatile: it has no journal"
	case d.requested.Mode == WriteBack && !d.enoughPeers():
		return "peers are short"
	case !d.clean():
		return "dirty data is being destaged"
	}
	return "in transition"
}

// assumedSAN is the least time that a destage is reckoned with, and all that is known of one before the first.
const assumedSAN = 1_000_000

// timeToDestage reckons with the runs that destages had so far and the slots that there are.
func (d *Disk) timeToDestage() int64 {
	n := d.occupied()
	if n == 0 {
		return 0
	}
	run := uint64(d.per)
	if ops := d.window.destages.IOs; ops > 0 {
		run = max(d.window.destages.Bytes>>block.SectorShift/ops, 1)
	}
	rounds := (n/run + uint64(d.destager.slots)) / uint64(d.destager.slots)
	return int64(rounds) * max(d.throttle.san, assumedSAN)
}

func (d *Disk) writeBack() bool { return d.accepting }

// flashed tells whether the host's own flash takes what it is given.
func (d *Disk) flashed() bool { return d.local().state == memberPresent }

// caching tells whether what is clean on flash can be used.
func (d *Disk) caching() bool { return d.effective != Off && d.flashed() }

func (d *Disk) populating() bool {
	return d.caching() && d.requested.Mode != Off && !d.requested.NoPopulation && !d.generation.unsure
}

// SetPolicy asks for a policy. done, if it is not nil, is called when the policy is in
// effect, or nothing is left to do for it: dirty data is destaged before a mode with less is. A disk that closes takes nothing
// dirty any more, whatever is asked for.
func (d *Disk) SetPolicy(p Policy, done func()) {
	if d.requested = p; d.closing {
		d.requested.Mode = WriteThrough
	}
	if done != nil {
		d.waiters = append(d.waiters, waiter{fn: done})
	}
	d.review()
	d.pump()
}

// SetThrottle changes the destaging area, its threshold and the law.
func (d *Disk) SetThrottle(t Throttle) {
	d.throttle.set(t, uint64(d.ix.Capacity())*uint64(d.per))
	d.relax()
	d.pump()
}

// Quiesce makes the device below have everything, for a backup or a snapshot that reads
// it there, and keeps it so: until Resume with the token, or until the time is over,
// writes go through. done gets the token when it is so, and 0 if the time is over, or the token was
// given back, before that; it is returned at once, too.
func (d *Disk) Quiesce(nanos int64, done func(token uint64)) (token uint64) {
	d.lastToken++
	q := quiesce{token: d.lastToken, until: d.exec.Now() + nanos}
	d.holds = append(d.holds, q)
	d.exec.At(q.until, func() {
		if d.Resume(q.token) {
			d.stats.ExpiredQuiesces++
		}
	})
	d.waiters = append(d.waiters, waiter{clean: true, token: q.token, fn: func() {
		if !d.holding(q.token) { // any more
			done(0)
			return
		}
		done(q.token)
	}})
	d.review()
	d.pump()
	return q.token
}

// Resume gives a token back; it tells whether it was still held.
func (d *Disk) Resume(token uint64) bool {
	if !d.holding(token) {
		return false
	}
	d.holds = slices.DeleteFunc(d.holds, func(q quiesce) bool { return q.token == token })
	d.review()
	d.pump()
	return true
}

// holding tells whether a token is held.
func (d *Disk) holding(token uint64) bool {
	return slices.ContainsFunc(d.holds, func(q quiesce) bool { return q.token == token })
}

// AddPeer offers a peer's flash. It is used when the policy asks for more peers than
// there are.
func (d *Disk) AddPeer(p Peer) error {
	m := &member{d: d, medium: p.Medium, peer: &p}
	if err := m.holds(d.size); err != nil {
		return fmt.Errorf("hostcache: %w", err)
	}
	d.members = append(d.members, m)
	m.ask(false)
	return nil
}

// LosePeer goes on without a peer; a front end calls it when it knows before the next write does.
func (d *Disk) LosePeer(name string) {
	for _, m := range d.members[1:] {
		if m.peer.Name == name {
			d.lose(m)
		}
	}
	d.pump()
}

// LoseFlash goes on without the host's own flash.
func (d *Disk) LoseFlash() {
	d.lose(d.local())
	d.pump()
}

// enoughPeers tells whether the peers that the policy asks for are present.
func (d *Disk) enoughPeers() bool {
	own, external := d.peersPresent(false)
	return own >= d.requested.Peers && external >= d.requested.External
}

func (d *Disk) peersPresent(joining bool) (own, external int) {
	for _, m := range d.members[1:] {
		if m.state == memberPresent || m.joins() && joining {
			if m.peer.Domain == "" {
				own++
			} else {
				external++
			}
		}
	}
	return own, external
}

// recruit chooses peers for those that are missing; they are present when a snapshot was
// written to them, which needs that nothing is dirty. They are asked first what they have.
func (d *Disk) recruit() (some bool) {
	own, external := d.peersPresent(true)
	for _, m := range d.members[1:] {
		if m.state != memberSpare && m.state != memberWanted && m.state != memberAsked {
			continue
		}
		wanted := false
		switch {
		case m.peer.Domain == "" && own < d.requested.Peers:
			own++
			wanted = true
		case m.peer.Domain != "" && external < d.requested.External:
			external++
			wanted = true
		}
		switch {
		case m.state == memberAsked:
		case !wanted:
			m.state, m.asked = memberSpare, false
		case !m.asked:
			m.ask(true)
		default:
			m.state, some = memberWanted, true
		}
	}
	return some
}

// review makes the disk do what is requested as far as it can be done now.
func (d *Disk) review() {
	if d.reviewing {
		return
	}
	d.reviewing = true
	want := d.requested.Mode
	if d.j.on && !d.opening && want == WriteBack && d.flashed() && !d.enoughPeers() && d.recruit() && d.clean() {
		d.j.renew()
	}
	d.accepting = want == WriteBack && d.j.on && !d.opening && d.flashed() && len(d.holds) == 0 && d.enoughPeers()
	was := d.effective
	switch {
	case d.accepting || !d.clean():
		d.effective = WriteBack
	case want == Off || !d.flashed():
		d.effective = Off
	default:
		d.effective = WriteThrough
	}
	if d.effective != was {
		d.stats.Transitions++
		if d.effective == Off {
			d.empty(func() {})
		}
	}
	if !d.clean() {
		d.turn.wake(d)
	}
	kept := d.waiters[:0]
	var ended []waiter
	for _, w := range d.waiters {
		if d.reached(w) {
			ended = append(ended, w)
			continue
		}
		kept = append(kept, w)
	}
	d.waiters = kept
	d.reviewing = false
	for _, w := range ended {
		d.hears(w)
	}
}

// hears tells a waiter. Where nothing is dirty any more it may let another host write, so all members have that first, over a loss of
// power, too: a start that does not find it would destage once more, over what that host has written.
func (d *Disk) hears(w waiter) {
	if !d.j.on || !d.clean() || d.accepting {
		d.exec.Post(w.fn)
		return
	}
	d.recorded(&op{d: d, mode: freeMode}, true, func(o *op) { d.hearsBehindMarks(o, w) })
}

// hearsBehindMarks tells it when the marks are made, too: a member that was left out has what was dirty, and a start without its mark
// believes it. Where they cannot be made, a quiesce gets no token.
func (d *Disk) hearsBehindMarks(o *op, w waiter) {
	o.step = func(o *op) { d.hearsBehindMarks(o, w) }
	if !d.opening && !o.unmarked && d.awaitMarks(o) {
		return
	}
	if o.unmarked && w.token != 0 {
		d.Resume(w.token)
	}
	d.exec.Post(w.fn)
}

// reached tells whether what a waiter waits for is so, or will not be any more.
func (d *Disk) reached(w waiter) bool {
	switch {
	case w.token != 0 && !d.holding(w.token):
		return true
	case w.clean:
		return d.clean() && !d.accepting
	}
	return d.emptying == 0 && (d.effective == d.requested.Mode || d.clean() && !d.accepting && !d.j.compact)
}
