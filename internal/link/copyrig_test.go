package link

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/arraysim/arraysim/internal/array"
	"github.com/arraysim/arraysim/internal/block"
	"github.com/arraysim/arraysim/internal/scsi"
	"github.com/arraysim/arraysim/internal/scsi/scsitest"
	"github.com/arraysim/arraysim/internal/store"
)

const copySecret = "a secret of two arrays, and of no node"

const sideSectors = 8 << 11 // of each volume

// side is an array of one I/O group with two volumes, and its target.
type side struct {
	t      testing.TB
	number int
	exec   *block.Live
	arr    *array.Array
	pool   *array.Pool
	target *scsi.Target
	vols   []*array.Volume
	units  []*scsi.Unit
}

func newSide(t testing.TB, number int) *side {
	t.Helper()
	s := &side{t: t, number: number, exec: block.NewLive()}
	t.Cleanup(s.exec.Stop)
	var err error
	s.exec.Lock()
	s.arr, err = array.Open(array.Options{Exec: s.exec, Store: store.NewMemory(s.exec, store.MemoryOptions{}), CacheBytes: 4 << 20, UUID: uint64(number) + 0x7000})
	s.exec.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.await(func(done func(error)) {
		s.arr.CreatePool(array.PoolSpec{Name: "p", Mdisks: []array.MdiskSpec{{Name: "m", Size: 64 << 20}}}, func(p *array.Pool, err error) {
			s.pool = p
			done(err)
		})
	})
	for v := range 2 {
		s.await(func(done func(error)) {
			s.arr.CreateVolume(array.VolumeSpec{Name: fmt.Sprintf("v%d%d", number, v), Pool: "p", Sectors: sideSectors, BlockSize: 512, Thin: true}, func(x *array.Volume, err error) {
				s.vols = append(s.vols, x)
				done(err)
			})
		})
	}
	s.export()
	return s
}

// export makes a target of the volumes, as a process that begins does.
func (s *side) export() {
	s.exec.Lock()
	defer s.exec.Unlock()
	tag := uint64(0)
	s.units = nil
	s.target = scsi.NewTarget(scsi.Options{Name: fmt.Sprintf("iqn.2026-11.org.example:s%d", s.number), Vendor: "A", Product: "B", Exec: s.exec, Random: func(b []byte) {
		tag++
		binary.BigEndian.PutUint64(b, tag<<8|uint64(s.number))
	}})
	for lun, v := range s.vols {
		u := s.target.AddUnit(v, scsi.UnitOptions{})
		s.units = append(s.units, u)
		if err := s.target.Map("", uint16(lun), u); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *side) await(fn func(done func(error))) {
	s.t.Helper()
	end := make(chan error, 1)
	s.exec.Lock()
	fn(func(err error) { end <- err })
	s.exec.Unlock()
	select {
	case err := <-end:
		if err != nil {
			s.t.Fatal(err)
		}
	case <-time.After(patience):
		s.t.Fatal("something of the array does not end")
	}
}

// login opens a nexus whose unit attentions are cleared.
func (s *side) login(name string) *host {
	s.t.Helper()
	s.exec.Lock()
	h := &host{t: s.t, exec: s.exec, n: s.target.OpenNexus(name, name+",i,0x00023d000001", 1)}
	s.exec.Unlock()
	for lun := range s.units {
		for range 3 {
			h.Do(scsitest.Command{LUN: uint64(lun), CDB: make([]byte, 6)})
		}
	}
	return h
}

func (s *side) device(v int, q *block.Request) {
	s.t.Helper()
	s.await(func(done func(error)) {
		q.Done = func(q *block.Request) {
			var err error
			if q.Status != block.OK {
				err = fmt.Errorf("%v of volume %d of array %d: %v", q.Op, v, s.number, q.Status)
			}
			done(err)
		}
		s.vols[v].Submit([]*block.Request{q})
	})
}

func (s *side) write(v int, at uint64, b []byte) {
	s.t.Helper()
	s.device(v, &block.Request{Op: block.OpWrite, Range: block.Range{Start: at, Count: uint64(len(b)) / 512}, Data: [][]byte{b}})
}

func (s *side) read(v int, at, n uint64) []byte {
	s.t.Helper()
	b := make([]byte, n*512)
	s.device(v, &block.Request{Op: block.OpRead, Range: block.Range{Start: at, Count: n}, Data: [][]byte{b}})
	return b
}

// flow is what an origin did with a volume.
func (s *side) flow(v int, o block.Origin) array.Flow {
	s.exec.Lock()
	defer s.exec.Unlock()
	var f [block.NumOrigins]array.Flow
	s.vols[v].Flow(&f)
	return f[o]
}

// free unmaps all volumes, and sees that no reference holds any of their space, and that what came into the cache went
// out of it.
func (s *side) free() {
	s.t.Helper()
	for v := range s.vols {
		for o := range block.NumOrigins {
			if f := s.flow(v, o); int64(f.In()) != int64(f.Out())+int64(f.Dirty) {
				s.t.Errorf("array %d, volume %d, %v: %d bytes came in, %d went out, %d are dirty", s.number, v, o, f.In(), f.Out(), f.Dirty)
			}
		}
		s.device(v, &block.Request{Op: block.OpUnmap, Ranges: []block.Range{{Count: sideSectors}}})
	}
	allocated := func() uint64 {
		s.exec.Lock()
		defer s.exec.Unlock()
		s.target.RevokeTokens()
		return s.pool.Stats().Allocated
	}
	for end := time.Now().Add(patience); allocated() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("array %d has %d bytes allocated and nothing written: something is held", s.number, allocated())
		}
	}
	s.exec.Lock()
	defer s.exec.Unlock()
	for _, p := range s.arr.Check(true).Problems {
		s.t.Errorf("check of array %d: %s", s.number, p)
	}
}

// tap is a connection in between: what the array that is copied from sends can be stopped, or the line be cut.
type tap struct {
	net.Listener
	mu    sync.Mutex
	cond  *sync.Cond
	to    string // guarded by mu
	left  int    // guarded by mu: bytes that still pass; below 0: any number
	conns []net.Conn
}

func newTap(t testing.TB) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: l, left: -1}
	p.cond = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		l.Close()
		p.cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.carry(c)
		}
	}()
	return p
}

func (p *tap) carry(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	p.mu.Lock()
	p.conns = append(p.conns, c, d)
	p.mu.Unlock()
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Read(b)
			if _, e := d.Write(b[:n]); err != nil || e != nil {
				d.Close()
				return
			}
		}
	}()
	b := make([]byte, 16<<10)
	for {
		n, err := d.Read(b)
		p.mu.Lock()
		for p.left >= 0 && p.left < n {
			p.cond.Wait()
		}
		if p.left >= 0 {
			p.left -= n
		}
		p.mu.Unlock()
		if _, e := c.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}

// pass lets so many further bytes through, below 0 any number.
func (p *tap) pass(n int) {
	p.mu.Lock()
	p.left = n
	p.mu.Unlock()
	p.cond.Broadcast()
}

// cut ends the connections.
func (p *tap) cut() {
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns, p.left = nil, -1
	p.mu.Unlock()
	p.cond.Broadcast()
}

// copyRig are two arrays: volumes of the first can be copied to the second.
type copyRig struct {
	t        testing.TB
	src, dst *side
	server   *Server
	client   *CopyClient
	tap      *tap
	limits   times
	epoch    uint64
	there    *host // of midway: the copy's host at the source
}

func newCopyRig(t testing.TB) *copyRig { return timedCopyRig(t, unhurried, 0) }

// timedCopyRig makes a rig whose destination has so many pieces under way at most; 0: as many as the source takes.
func timedCopyRig(t testing.TB, limits times, pieces int) *copyRig {
	t.Helper()
	r := &copyRig{t: t, src: newSide(t, 1), dst: newSide(t, 2), tap: newTap(t), limits: limits}
	r.serve()
	c, err := NewCopyClient(CopyClientConfig{Name: "source", Self: "b", Nodes: []string{r.tap.Addr().String()}, Secret: []byte(copySecret), times: limits, pieces: pieces})
	if err != nil {
		t.Fatal(err)
	}
	r.client = c
	t.Cleanup(c.Stop)
	r.dst.exec.Lock()
	scsi.LinkCopies(r.dst.target, c)
	r.dst.exec.Unlock()
	r.linked(true)
	return r
}

// serve has the source's array lend from now on, as a process that begins does.
func (r *copyRig) serve() {
	r.t.Helper()
	s, err := NewServer(ServerConfig{Self: Node{ID: 1, Name: "a", Ports: 1}, Targets: []*scsi.Target{r.src.target}, Secret: []byte(testSecret), Array: "source", Epoch: r.epoch,
		Copies: []CopySecret{{Name: "destination", Secret: []byte(copySecret)}}, times: r.limits})
	if err != nil {
		r.t.Fatal(err)
	}
	addr := serving(r.t, s)
	r.server = s
	r.tap.mu.Lock()
	r.tap.to = addr
	r.tap.mu.Unlock()
}

func (r *copyRig) linked(want bool) {
	r.t.Helper()
	r.poll("the link", func() bool { return r.client.Peer().Linked == want })
}

func (r *copyRig) poll(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// names is the CSCD descriptor of a volume by its NAA name.
func (s *side) names(v int) []byte {
	s.exec.Lock()
	defer s.exec.Unlock()
	naa := s.vols[v].Info().NAA
	b := make([]byte, 32)
	b[0], b[4], b[5], b[7] = 0xE4, 1, 3, 16
	copy(b[8:], naa[:])
	binary.BigEndian.PutUint32(b[28:], 512)
	return b
}

// copies is an EXTENDED COPY of n sectors, to a LUN.
func copies(lun int, src, dst []byte, n int, from, to uint64) scsitest.Command {
	list := scsitest.CopyList(0, 3, [][]byte{src, dst}, [][]byte{scsitest.Segment02(0, 1, n, from, to, false)})
	return scsitest.Command{LUN: uint64(lun), CDB: scsitest.CopyCDB(list), Out: list}
}

// end is a result in short: GOOD, or its status with sense key, code and qualifier.
func end(r scsitest.Result) string {
	if r.Status == scsi.StatusCheckCondition {
		return fmt.Sprintf("%06x", code(r))
	}
	return fmt.Sprintf("%02x", r.Status)
}

func stamps(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i/512)*7 + byte(i)
	}
	return b
}

// token makes a token of the first sectors of a unit.
func (h *host) token(lun, sectors int) []byte {
	h.t.Helper()
	l := scsitest.PopulateList(0, 0, 0, scsitest.Extent{Blocks: uint32(sectors)})
	if r := h.Do(scsitest.Command{LUN: uint64(lun), CDB: scsitest.TokenCDB(0x10, 1, l), Out: l}); r.Status != 0 {
		h.t.Fatalf("POPULATE TOKEN: %s", end(r))
	}
	b := h.Do(scsitest.Command{LUN: uint64(lun), CDB: scsitest.ReceiveCDB(0x84, 0x07, 1), In: 4096}).In
	at := 32 + int(b[13])
	return bytes.Clone(b[at+6 : at+6+512])
}

// redeem is a WRITE USING TOKEN.
func redeem(lun int, flags byte, token []byte, to uint64, n int) scsitest.Command {
	l := scsitest.WriteTokenList(flags, 0, token, scsitest.Extent{LBA: to, Blocks: uint32(n)})
	return scsitest.Command{LUN: uint64(lun), CDB: scsitest.TokenCDB(0x11, 2, l), Out: l}
}
