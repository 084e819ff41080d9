package iscsi

import (
	"slices"

	"github.com/arraysim/arraysim/internal/scsi"
)

// tmfReassign asks to move a task to another connection (RFC 7143 11.5.1), which
// takes an ErrorRecoveryLevel of 2.
const (
	tmfReassign       = 8
	tmfNoReassignment = scsi.TMFResponse(4)
)

// manage carries out a task management request. Commands that have not arrived or
// still collect their data are known here alone; the rest is the SCSI layer's.
func (c *conn) manage(h bhs) error {
	fn := scsi.TMF(h[offFlags] &^ flagFinal)
	immediate := h.immediate()
	itt := h.itt()
	if immediate {
		if c.immediates.Load() >= maxImmediates {
			c.reject(rejectTooManyImmed, h)
			return nil
		}
		c.immediates.Add(1)
	}
	answer := func(r scsi.TMFResponse) {
		if immediate {
			c.immediates.Add(-1)
		}
		ct := getControl(opTaskMgmtResp)
		ct.credit = !immediate
		ct.hdr[offResponse] = byte(r)
		bhs(ct.hdr[:]).put32(offITT, itt)
		c.enqueue(outItem{ctl: ct})
	}

	tag, lun := h.u32(offRefTask), h.lun()
	switch fn {
	case scsi.AbortTask:
		if c.abortBefore(h) || c.abortOpen(func(cmd *command) bool { return cmd.itt == tag && scsi.SameLUN(cmd.task.LUN, lun) }) > 0 {
			answer(scsi.TMFComplete)
			return nil
		}
	case scsi.AbortTaskSet, scsi.ClearTaskSet, scsi.LogicalUnitReset:
		if err := c.fence(fence{lun: lun, sn: h.cmdSN()}); err != nil {
			return err
		}
		c.abortOpen(func(cmd *command) bool { return scsi.SameLUN(cmd.task.LUN, lun) })
	case scsi.TargetWarmReset, scsi.TargetColdReset:
		if err := c.fence(fence{all: true, sn: h.cmdSN()}); err != nil {
			return err
		}
		c.abortOpen(func(*command) bool { return true })
	case scsi.ClearACA:
	case tmfReassign:
		answer(tmfNoReassignment)
		return nil
	default:
		answer(scsi.TMFNotSupported)
		return nil
	}
	// The function affects what was received before it, which therefore goes first.
	c.submit()
	if c.pending != nil || len(c.batch) > 0 || c.portal.holding.Load() != nil || c.aborting.Load() { // in order behind what waits
		c.pending = append(c.pending, pending{c.batch, fn, lun, uint64(tag), answer})
		c.batch = nil
		c.deferred.Add(1)
		return nil
	}
	c.manageNow(fn, lun, uint64(tag), answer)
	return nil
}

// coldReset ends the session because of a TARGET COLD RESET (RFC 7143 11.5.1); the answer to that
// and a notice go out before. Any goroutine may call it.
func (c *conn) coldReset() {
	c.reset.Store(true)
	c.kick()
}

// fence is what an immediate task management function leaves behind when commands
// numbered before it are missing: it affects those too (RFC 7143 4.2.3.3), so
// they are aborted when it is their turn.
type fence struct {
	lun uint64
	all bool   // all logical units
	sn  uint32 // CmdSN of the function
}

const maxFences = 32

// fence raises f, if a command before it is missing.
func (c *conn) fence(f fence) error {
	if int32(f.sn-c.expCmdSN.Load()) <= 0 || int32(f.sn-c.maxCmdSN.Load()) > 1 {
		return nil
	}
	for i := range c.fences {
		if o := &c.fences[i]; scsi.SameLUN(o.lun, f.lun) && o.all == f.all {
			if int32(f.sn-o.sn) > 0 {
				o.sn = f.sn
			}
			return nil
		}
	}
	if len(c.fences) == maxFences {
		return violation(ErrSequence, rejectProtocol, "%d resets behind a gap at CmdSN %d", maxFences+1, c.expCmdSN.Load())
	}
	c.fences = append(c.fences, f)
	return nil
}

// fenced tells whether a command whose turn it is falls to a fence; then it is
// over. Preconditions: there are fences.
func (c *conn) fenced(h bhs) bool {
	if h.immediate() {
		return false
	}
	hit := slices.ContainsFunc(c.fences, func(f fence) bool {
		return int32(h.cmdSN()-f.sn) < 0 && (f.all || scsi.SameLUN(f.lun, h.lun()))
	})
	exp := c.expCmdSN.Load()
	c.fences = slices.DeleteFunc(c.fences, func(f fence) bool { return int32(f.sn-exp) <= 0 })
	if hit {
		c.noteAborted(h.itt())
		c.maxCmdSN.Add(1)
	}
	return hit
}

// abortBefore deals with ABORT TASK for a command that has not arrived: it counts
// as received, and is ignored when it comes (RFC 7143 11.5.1).
func (c *conn) abortBefore(h bhs) bool {
	ref, exp := h.u32(offRefCmdSN), c.expCmdSN.Load()
	if int32(ref-exp) < 0 || int32(ref-c.maxCmdSN.Load()) > 0 || int32(ref-h.cmdSN()) >= 0 {
		return false
	}
	if p := c.held[ref]; p != nil {
		if bhs(p.hdr[:]).itt() != h.u32(offRefTask) {
			return false
		}
		c.heldBytes -= p.size()
		for _, d := range p.more {
			c.heldBytes -= d.size()
		}
	}
	if c.held == nil {
		c.held = make(map[uint32]*heldPDU)
	}
	c.held[ref] = nil
	c.noteAborted(h.u32(offRefTask))
	return true
}

// abortOpen ends the commands that are not yet submitted and for which match
// says so; they get no response.
func (c *conn) abortOpen(match func(*command) bool) (n int) {
	for _, cmd := range c.open {
		if !match(cmd) {
			continue
		}
		c.dropOpen(cmd)
		c.forget(cmd)
		n++
	}
	return n
}

// dropOpen takes a command that is not submitted out of the books.
func (c *conn) dropOpen(cmd *command) {
	c.leave(cmd)
	if i := slices.Index(c.waiting, cmd); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	if i := slices.Index(c.parked, cmd); i >= 0 {
		c.parked = slices.Delete(c.parked, i, i+1)
	}
	c.noteAborted(cmd.itt)
}

// forget ends a command without a response.
func (c *conn) forget(cmd *command) {
	c.creditFor(cmd)
	cmd.release()
}

// noteAborted remembers a task whose Data-Out may still arrive.
func (c *conn) noteAborted(itt uint32) {
	if c.abortedITTs == nil { // one reset may end all that the window has
		c.abortedITTs = make([]uint32, c.limits.Window+maxImmediates)
	}
	c.abortedITTs[c.abortedNext%len(c.abortedITTs)] = itt
	c.abortedNext++
}

func (c *conn) wasAborted(itt uint32) bool {
	for _, t := range c.abortedITTs[:min(c.abortedNext, len(c.abortedITTs))] {
		if t == itt {
			return true
		}
	}
	return false
}
