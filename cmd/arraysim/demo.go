package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
	"github.com/arraysim/arraysim/internal/demo"
)

// demoFlags are the flags of `arraysim demo`.
type demoFlags struct {
	running, remove, once bool
	page                  string
	folder                *atomic.Pointer[demo.Folder] // once there is one
}

func (a *app) demo() *cobra.Command {
	var f demoFlags
	c := a.jsonFlag(&cobra.Command{
		Use: "demo", Short: "Clone a volume by offload and show what that does to another host's writes",
		Long: `demo starts a temporary array on loopback addresses, in memory. A host fills one volume over
iSCSI and clones it by EXTENDED COPY (XCOPY); another host writes 4 KiB at a time to a volume in
the same pool. The terminal shows both layers and the latency of these writes. It takes about 15
seconds and needs neither root nor an initiator. The array then serves until Ctrl-C.

VICTIM is the mean latency of the writes that ended since the previous line, or the age of the
write that waits. The median at the end is corrected for coordinated omission: a write that waited
stands for all that were due meanwhile.

With --data DIR the array keeps its socket and token in DIR, which must not exist or must be empty.
With --running the demonstration uses the array that serves --data (./data). It creates the pools
demo-images and demo-shared there and keeps them; --remove deletes them.`,
		Example: "  arraysim demo\n  arraysim demo --once --json | jq .clone_undercover_bytes\n" +
			"  arraysim demo --running\n  arraysim demo --running --remove",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.remove && !f.running:
				return errors.New("--remove needs --running: the demonstration's own array disappears when it ends")
			case f.running && f.page != "":
				return errors.New("--page is for the demonstration's own array; leave it out with --running")
			}
			a.running = true
			f.folder = &atomic.Pointer[demo.Folder]{}
			ctx, _ := signalsWith(func() {
				if folder := f.folder.Load(); folder != nil {
					_ = folder.Remove() // the process ends
				}
			}, syscall.SIGHUP)
			ctx, end := context.WithCancel(ctx)
			defer end()
			// Without this the runtime ends the process when nobody reads on, as behind a pipe to head, and the folder stays.
			signal.Ignore(syscall.SIGPIPE)
			cmd.SetOut(&unread{cmd.OutOrStdout(), end})
			var err error
			switch {
			case f.remove:
				err = demo.Remove(ctx, a.client())
			case f.running:
				err = a.demoRunning(ctx, cmd)
			default:
				err = a.demoOwn(ctx, cmd, f)
			}
			if err != nil && ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		},
	})
	c.Flags().BoolVar(&f.running, "running", false, "use the array that serves the data folder")
	c.Flags().BoolVar(&f.remove, "remove", false, "with --running: delete what earlier demonstrations left")
	c.Flags().BoolVar(&f.once, "once", false, "end when the demonstration is over")
	c.Flags().StringVar(&f.page, "page", "", "address of the array's page, host:port (default: 127.0.0.1:9400, or any port if that is taken)")
	return c
}

// unread is an output that ends the demonstration when nobody reads it any more.
type unread struct {
	io.Writer
	end context.CancelFunc
}

func (u *unread) Write(b []byte) (int, error) {
	n, err := u.Writer.Write(b)
	if err != nil {
		u.end()
	}
	return n, err
}

// demoRunning runs on an array that serves already.
func (a *app) demoRunning(ctx context.Context, cmd *cobra.Command) error {
	data := ""
	if a.data != "" {
		data = " --data " + admin.ShellWord(a.data)
	}
	if err := a.showDemo(ctx, cmd, a.client(), 100, data, true); err != nil || a.json {
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "  %-32s %s demo --running --remove%s\n", "delete its volumes and pools", calledAs(), data)
	return err
}

// demoOwn runs on an array of its own and keeps that up until ctx ends.
func (a *app) demoOwn(ctx context.Context, cmd *cobra.Command, f demoFlags) (err error) {
	folder, err := demo.NewFolder(a.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Remove()) }()
	f.folder.Store(folder)
	array, err := demo.Serve(ctx, folder, f.page, admin.PrintableWriter(os.Stderr))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, array.Close()) }()
	if err := a.showDemo(ctx, cmd, array.Client, 0, " --data "+admin.ShellWord(array.Data), !f.once); err != nil || f.once {
		return err
	}
	if !a.json {
		fmt.Fprintf(cmd.OutOrStdout(), "\nThe array serves until Ctrl-C, which also deletes it.\n")
	}
	return array.Wait(ctx)
}

// showDemo runs the demonstration and prints it. stays says that the array goes on afterwards, so that the
// output may name commands for it; data is the flag by which they find it.
func (a *app) showDemo(ctx context.Context, cmd *cobra.Command, array *admin.Client, prefer int, data string, stays bool) error {
	opt := demo.Options{Array: array, Prefer: prefer, Every: time.Second}
	switch out := cmd.OutOrStdout(); {
	case a.json:
	case terminal(os.Stdout):
		// The names in it are constants: what moves the cursor need not be kept from out.
		opt.Every, opt.Show = 400*time.Millisecond, newDemoScreen(os.Stdout).show
	default:
		opt.Show = newDemoLines(out).show
	}
	s, err := array.Status(ctx)
	if err != nil {
		return err
	}
	if !a.json {
		fmt.Fprintf(cmd.OutOrStdout(), "array %s, page %s\n\n", s.Data, orNone(s.Page))
	}
	r, err := demo.Run(ctx, opt)
	if err != nil {
		return err
	}
	return show(a, cmd, r, func(w io.Writer, r *demo.Result) {
		writeDemo(w, r)
		if stays {
			writeDemoNext(w, s.Page, data)
		}
	})
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// writeDemo prints the evidence and what it says.
func writeDemo(w io.Writer, r *demo.Result) {
	fmt.Fprintln(w)
	admin.WriteTotals(w, r.Counters)
	fmt.Fprintf(w, "\nHosts wrote %s to %s. Below them the array wrote %s: the clone.\n", r.CloneWritten.Human(), demo.Clone, r.Undercover.Human())
	fmt.Fprintf(w, "The clone held up to %.0f %% of the write cache that its pool may use.\n", 100*r.Peak)
	fmt.Fprintf(w, "A write of 4 KiB to %s took %s before the clone, %s during it, and %s after it (median).\n", demo.Victim,
		demoMillis(r.Before.Median), demoMillis(r.During.Median), demoMillis(r.After.Median))
}

func demoMillis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }

// writeDemoNext says where the evidence is.
func writeDemoNext(w io.Writer, page, data string) {
	fmt.Fprintf(w, "\nLook at it from another terminal:\n")
	try := func(what, how string) { fmt.Fprintf(w, "  %-32s %s\n", what, how) }
	if page != "" {
		try("the page, with its findings", page)
	}
	try("both layers, by volume", calledAs()+" counters"+data)
	try("the same, live", calledAs()+" top"+data)
	try("limit what offloads may hold", calledAs()+" policy set --budget 30 --budget-pressure"+data)
	try("then clone again", calledAs()+" demo --running"+data)
}
