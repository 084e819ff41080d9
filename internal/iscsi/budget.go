package iscsi

import "sync"

// smallCommand is the longest transfer, in bytes, that is never charged and so never refused for
// want of memory: INQUIRY, REPORT LUNS and the like. The windows of the sessions bound what such
// commands take together.
const smallCommand = 8 << 10

// budget is the data of all commands in progress, see Limits.Memory. Each session has a share that
// is its own whatever the others hold; what is beyond comes from what is common to all. It may be
// locked with the executor held.
type budget struct {
	share, common int64 // bytes; fixed

	mu    sync.Mutex
	used  int64 // guarded by mu: of common
	total int64 // guarded by mu: held by all sessions
}

// account is what one session holds of the budget.
type account struct{ held int64 } // guarded by the budget's mu

// init divides the limits: half of the memory is common, or as much as the longest command needs.
func (b *budget) init(l *Limits) {
	b.common = int64(max(l.Memory/2, l.MaxCommandData))
	b.share = (int64(l.Memory) - b.common) / int64(l.MaxSessions)
}

// beyond is what of n bytes a session's share does not cover.
func (b *budget) beyond(n int64) int64 { return max(n-b.share, 0) }

// take charges n bytes; it reports false, and nothing is charged, when there are not as many.
func (b *budget) take(a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := b.beyond(a.held+n) - b.beyond(a.held)
	if more > b.common-b.used {
		return false
	}
	b.used += more
	b.total += n
	a.held += n
	return true
}

// room reports whether n bytes could be charged now.
func (b *budget) room(a *account, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beyond(a.held+n)-b.beyond(a.held) <= b.common-b.used
}

// give takes back n bytes.
func (b *budget) give(a *account, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= b.beyond(a.held) - b.beyond(a.held-n)
	b.total -= n
	a.held -= n
}

// Held returns the bytes of data of all commands in progress, see Limits.Memory.
func (p *Portal) Held() int64 {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.budget.total
}

// charge makes the command hold memory for its data up to offset upTo, in the pieces in which that
// is taken. It reports false when the portal has no more. What a peer only announced is not
// charged.
func (cmd *command) charge(upTo int) bool {
	upTo = min((upTo+chunkLen-1)&^(chunkLen-1), cmd.edtl)
	n := upTo - cmd.held
	if cmd.edtl <= smallCommand || n <= 0 {
		return true
	}
	c := cmd.conn
	if !c.portal.budget.take(&c.account, int64(n)) {
		return false
	}
	cmd.held = upTo
	return true
}

// settleCharge gives back what was charged for an answer and is not needed, now that the answer is
// known.
func (cmd *command) settleCharge() {
	n := 0
	for _, b := range cmd.out {
		n += len(b.B)
	}
	for _, b := range cmd.in {
		n += len(b.B)
	}
	if n < cmd.held {
		cmd.conn.portal.budget.give(&cmd.conn.account, int64(cmd.held-n))
		cmd.held = n
	}
}
