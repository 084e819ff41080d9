package admin

import "fmt"

// greet says that all doors are open, and what to try.
func (d *daemon) greet() {
	portal, target := d.portalName(), d.cfg.Portal.Target
	metrics := listenNone
	if d.metricsAddr != nil {
		metrics = "http://" + reachable(d.metricsAddr) + "/metrics"
	}
	w := d.env.Out
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
	data := ""
	if d.cfg.Data != "data" {
		data = " --data " + d.cfg.Data
	}
	fmt.Fprintf(w, "\nTry next, in another terminal:\n")
	try := func(what, command string) { fmt.Fprintf(w, "  %-29s %s\n", what, command) }
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
		url := fmt.Sprintf("iscsi://%s/%s/%d", portal, target, lun)
		try("ask LUN "+fmt.Sprint(lun)+" what it can do", "iscsi-inq -e 1 -c 176 "+url)
		try("write an image to it", "qemu-img convert -n -O raw disk.img "+url)
		try("the same through the kernel", fmt.Sprintf("iscsiadm -m discovery -t st -p %s && iscsiadm -m node -l", reachable(d.portalAddr)))
		try("then zero by offload, as root", "sg_write_same --16 --lba=0 --num=2048 /dev/sdX")
		try("and clone by offload", "sg_xcopy if=/dev/sgX of=/dev/sgY")
	}
	if d.metricsAddr != nil {
		try("watch it in a browser", "http://"+reachable(d.metricsAddr)+"/")
		try("and change it there", "arraysim token"+data)
	}
	try("watch it in a terminal", "arraysim top"+data)
	if d.metricsAddr != nil {
		try("what no host sent", "curl -s "+metrics+" | grep undercover")
	}
	fmt.Fprintln(w)
}

// greetKernel says how a volume becomes a disk of this machine.
func (d *daemon) greetKernel(try func(what, command string)) {
	pool := "POOL"
	if pools := d.listPools(); len(pools) > 0 {
		pool = pools[0].Name
	}
	try("make a volume a backstore", "targetcli /backstores/user:array create name=db1 size=1G cfgstring="+pool+"/db1")
}
