package admin

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// greet says that all doors are open, and what to try: the demonstration first.
func (d *daemon) greet() {
	portal, target := d.portalName(), d.cfg.Portal.Target
	metrics := listenNone
	if d.metricsAddr != nil {
		metrics = "http://" + reachable(d.metricsAddr) + "/metrics"
	}
	w := &strings.Builder{} // it is written at once: who waits for the first line may read the last
	doors := "iscsi://" + portal + "/" + target
	for _, g := range d.groups[1:] {
		doors += ", iscsi://" + portal + "/" + groupTarget(target, g.number)
	}
	if d.portalAddr == nil {
		doors = "iscsi " + listenNone
	}
	if d.kernel != nil {
		doors += ", tcmu"
	}
	fmt.Fprintf(w, "ready: %s, metrics %s, data %s\n", doors, metrics, d.cfg.Data)
	lun := -1
	for _, e := range d.listExports() {
		if lun < 0 && len(e.Initiators) == 0 {
			lun, target = e.LUN, e.Target
		}
	}
	command, data := cmp.Or(d.env.Command, "arraysim"), ""
	if d.cfg.Data != "data" {
		data = " --data " + ShellWord(d.cfg.Data)
	}
	fmt.Fprintf(w, "\nTry next, in another terminal:\n")
	try := func(what, command string) { fmt.Fprintf(w, "  %-29s %s\n", what, command) }
	if d.portalAddr != nil && d.cfg.Portal.CHAP == nil {
		try("see writes that no host sends", command+" demo --running"+data)
	}
	if d.metricsAddr != nil {
		try("watch them in a browser", "http://"+reachable(d.metricsAddr)+"/")
	}
	try("watch them in a terminal", command+" top"+data)
	if d.cfg.Portal.CHAP != nil {
		portal = d.cfg.Portal.CHAP.User + "%SECRET@" + portal
	}
	if d.kernel != nil {
		d.greetKernel(try)
	}
	if d.portalAddr != nil {
		try("list the LUNs", "iscsi-ls -s iscsi://"+portal)
	}
	if lun >= 0 && d.portalAddr != nil {
		try(fmt.Sprintf("write an image to LUN %d", lun), fmt.Sprintf("qemu-img convert -n -O raw disk.img iscsi://%s/%s/%d", portal, target, lun))
		try("use the LUNs in the kernel", fmt.Sprintf("iscsiadm -m discovery -t st -p %s && iscsiadm -m node -l", reachable(d.portalAddr)))
	}
	if d.metricsAddr != nil {
		try("change the array on the page", command+" token"+data)
	}
	fmt.Fprintln(w)
	_, _ = io.WriteString(d.env.Out, w.String()) // as a log is: the array serves without a reader, too
}

// greetKernel says how a volume becomes a disk of this machine.
func (d *daemon) greetKernel(try func(what, command string)) {
	pool := "POOL"
	if pools := d.listPools(); len(pools) > 0 {
		pool = pools[0].Name
	}
	try("make a volume a backstore", "targetcli /backstores/user:array create name=db1 size=1G cfgstring="+pool+"/db1")
}

// plain is what no shell gives a meaning to.
var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellWord quotes s where a shell would not read it as one word that stands for itself.
func ShellWord(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
