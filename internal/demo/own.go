package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/arraysim/arraysim/internal/admin"
)

// config is the demonstration's own array: it lives in memory, and its write cache is small, so that it is full soon.
// Its pools and volumes are created while it runs.
const config = `
store: memory
cache: {size: 64MiB}
portal: {listen: "127.0.0.1:0"}
`

// startTime bounds how long its array may take to be ready.
const startTime = time.Minute

// Array is an array that this process serves on loopback addresses.
type Array struct {
	*admin.Client
	// Data is the folder of its socket and token.
	Data string

	cancel context.CancelFunc
	ended  chan error
}

// Serve starts an array in a folder, which is the caller's to remove when the array is closed. page is the address of its
// page; "" is 127.0.0.1:9400 or, if that is taken, any port that is free. Warnings go to log.
func Serve(ctx context.Context, data *Folder, page string, log io.Writer) (*Array, error) {
	cfg, err := admin.ParseConfig("demo", []byte(config))
	if err != nil {
		return nil, err
	}
	if cfg.Metrics.Listen = page; page == "" {
		cfg.Metrics.Listen = freePage()
	}
	a := &Array{Client: admin.NewClient(data.Path), Data: data.Path, ended: make(chan error, 1)}
	cfg.Data = a.Data
	// Close alone ends the array: whoever is interrupted ends the sessions first.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.cancel = cancel
	go func() {
		a.ended <- admin.Serve(serving, cfg, admin.Environment{Out: io.Discard, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	}()
	if err := a.ready(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// ready waits until the array answers.
func (a *Array) ready(ctx context.Context) error {
	for end := time.Now().Add(startTime); ; {
		_, err := a.Status(ctx)
		if err == nil {
			return nil
		}
		select {
		case why := <-a.ended:
			a.ended <- nil // it is said once
			return why
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("the array is not ready after %v: %w", startTime, err)
		}
	}
}

// freePage returns the usual address of the page, or one with any port.
func freePage() string {
	const usual = "127.0.0.1:9400"
	l, err := net.Listen("tcp4", usual)
	if err != nil {
		return "127.0.0.1:0"
	}
	l.Close()
	return usual
}

// Wait returns when the array has ended by itself, or with ctx.
func (a *Array) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.ended:
		a.ended <- err
		return err
	}
}

// Close stops the array.
func (a *Array) Close() error {
	// What is dirty would be destaged at the pace of the slow mdisk, for nothing. There may be no such pool yet.
	_ = Unlimited(context.Background(), a.Client)
	a.cancel()
	err := <-a.ended
	a.ended <- nil
	return err
}
