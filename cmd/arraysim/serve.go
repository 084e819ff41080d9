package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/arraysim/arraysim/internal/admin"
)

// lastWords is how long the error of a stop that hangs may take to be printed.
const lastWords = time.Second

func (a *app) serve() *cobra.Command {
	var listen, metrics, volumes, profile, record string
	var interval time.Duration
	var keep int
	var debug, print, tcmu bool
	c := &cobra.Command{
		Use:   "serve [config.yaml]",
		Short: "Run the array",
		Long: `serve runs the array until SIGINT or SIGTERM. It then closes the sessions and destages dirty data,
for at most two and a half minutes; the rest stays in NVRAM, and the next start recovers it. A stop
that hangs, as on a disk that does not answer, ends with an error that names what it waits for.
A second signal stops it immediately: dirty data stays in NVRAM.

Without a configuration file, a new data folder gets two pools and five volumes. --listen and
--metrics override the configuration, whose defaults are 127.0.0.1:3260 and 127.0.0.1:9400.`,
		Example: "  arraysim serve\n  arraysim serve array.yaml --data /srv/array --listen 127.0.0.1:3261\n  arraysim serve --tcmu --listen none\n  arraysim serve --print-config > array.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.do(func(cmd *cobra.Command, args []string) error {
			if print {
				_, err := cmd.OutOrStdout().Write(admin.EmbeddedConfig())
				return err
			}
			cfg := admin.DefaultConfig()
			if len(args) > 0 {
				var err error
				if cfg, err = admin.LoadConfig(args[0]); err != nil {
					return err
				}
			}
			if a.data != "" {
				cfg.Data = a.data
			}
			if listen != "" {
				cfg.Portal.Listen = listen
			}
			if metrics != "" {
				cfg.Metrics.Listen = metrics
			}
			if volumes != "" {
				cfg.Metrics.Volumes = volumes
			}
			if profile != "" {
				cfg.Profile = profile
			}
			cfg.TCMU = cfg.TCMU || tcmu
			level := slog.LevelInfo
			if debug {
				level = slog.LevelDebug
			}
			if record != "" {
				cfg.Record.Dir = record
			}
			if interval != 0 {
				if interval < 100*time.Millisecond {
					return fmt.Errorf("an interval of %v is too short; give --record-interval 100ms or more", interval)
				}
				cfg.Record.Interval = interval
			}
			if cmd.Flags().Changed("record-keep") {
				if keep < 0 {
					return fmt.Errorf("--record-keep is %d; it is a number of files, or 0 for all", keep)
				}
				cfg.Record.Keep = keep
			}
			ctx, hurry := signals()
			err := admin.Serve(ctx, cfg, admin.Environment{
				Out:     admin.PrintableWriter(os.Stdout), // it serves on, whoever reads this
				Command: calledAs(),
				Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
				Hurry:   hurry,
			})
			if errors.Is(err, admin.ErrHangs) { // perhaps nobody reads what is printed, either
				time.AfterFunc(lastWords, func() { os.Exit(exitFailed) })
			}
			return err
		}),
	}
	c.Flags().StringVar(&listen, "listen", "", `address of the iSCSI portal, host:port (port 0: any that is free), or "none" with --tcmu`)
	c.Flags().StringVar(&metrics, "metrics", "", `address of the page, the API and the metrics, host:port, or "none"`)
	c.Flags().StringVar(&volumes, "metrics-volumes", "", `volumes that a scrape shows individually: "top:N" (the rest as one) or "all" (default "top:100")`)
	c.Flags().StringVar(&profile, "profile", "", "inject the time costs and the cache policy of a profile; see: arraysim profile")
	c.Flags().StringVar(&record, "record", "", "write all counters into this folder: Parquet files of 60 readings, and iostats XML")
	c.Flags().DurationVar(&interval, "record-interval", 0, "with --record: time between two readings (default 1m)")
	c.Flags().IntVar(&keep, "record-keep", 0, "with --record: number of complete Parquet files to keep (0: all)")
	c.Flags().BoolVar(&tcmu, "tcmu", false, "also serve the kernel, as tcmu-runner does (needs root; see /backstores/user:array in targetcli)")
	c.Flags().BoolVar(&debug, "debug", false, "also log debug messages")
	c.Flags().BoolVar(&print, "print-config", false, "print the built-in configuration and exit")
	return c
}

// signals returns a context that the first SIGINT or SIGTERM ends and a channel
// that the second closes; a third ends the process.
func signals() (context.Context, <-chan struct{}) { return signalsWith(func() {}) }

// signalsWith is signals that listens to others, too, unless the process was started with these ignored, as by nohup.
// It calls last before the third ends the process.
func signalsWith(last func(), others ...os.Signal) (context.Context, <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	hurry := make(chan struct{})
	ch := make(chan os.Signal, 3)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	for _, s := range others {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	go func() {
		<-ch
		stop()
		<-ch
		close(hurry)
		<-ch
		last()
		os.Exit(exitFailed)
	}()
	return ctx, hurry
}
