package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// othersStatistics is an error where a folder has statistics files that no run has left there.
func othersStatistics(dir string) error {
	at := filepath.Join(dir, iostatsFolder)
	st, err := os.Lstat(at)
	if err != nil {
		return nil // where the folder cannot be read, nothing can be made in it, and that says why
	}
	if !st.IsDir() {
		return fmt.Errorf("output: %s is not a folder; move it elsewhere, or give another --out", at)
	}
	files, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	ours := runsSets(dir, files)
	if slices.ContainsFunc(files, func(f fs.DirEntry) bool { return isStatistics(f.Name()) && !ours(f.Name()) }) {
		return fmt.Errorf("output: %s has statistics files that are not of a run that came to its end; move it elsewhere, or give another --out", at)
	}
	return nil
}

// isStatistics tells whether a file is one of a set of statistics, of whatever array, or belongs to the sets.
func isStatistics(name string) bool {
	kind, _, set := strings.Cut(name, "_stats_")
	return set && slices.Contains([]string{"Nn", "Nv", "Nm", "Nd"}, kind) || isList(name)
}

// runPanel is the panel name in the names of a run's statistics files. Those of earlier versions had the one of an array that is
// served, too.
const runPanel, servedPanel = "SIMRUN", "000000"

// runsSets returns what tells whether a file is one of a set that the run has left whose folder dir is and whose statistics folder
// has these files, or belongs to all of its sets.
func runsSets(dir string, files []fs.DirEntry) func(name string) bool {
	panel := func(name string) string {
		_, rest, _ := strings.Cut(name, "_stats_")
		panel, _, _ := strings.Cut(rest, "_")
		return panel
	}
	of := func(p string) bool {
		return slices.ContainsFunc(files, func(f fs.DirEntry) bool { return isStatistics(f.Name()) && panel(f.Name()) == p })
	}
	own := runPanel
	if !of(runPanel) && recorded(dir) {
		own = servedPanel
	}
	left := hasRun(dir) && of(own)
	return func(name string) bool { return left && isStatistics(name) && (panel(name) == own || isList(name)) }
}

// isList tells whether a file belongs to all sets of a folder.
func isList(name string) bool { return name == "lsvdisk" || name == "lsmdiskgrp" }

// forgetStatistics removes the statistics files of a run from its folder, and theirs if there is nothing else in it. The sets, by
// which a run's files are known, go last.
func forgetStatistics(dir string) error {
	at := filepath.Join(dir, iostatsFolder)
	files, err := os.ReadDir(at)
	if err != nil {
		return gone(err)
	}
	ours := runsSets(dir, files)
	theirs := slices.DeleteFunc(slices.Clone(files), func(f fs.DirEntry) bool { return !ours(f.Name()) })
	slices.SortStableFunc(theirs, func(a, b fs.DirEntry) int { return strings.Compare(b.Name(), a.Name()) }) // lists before N...
	var errs []error
	for _, f := range theirs {
		errs = append(errs, os.Remove(filepath.Join(at, f.Name())))
	}
	if len(theirs) == len(files) {
		errs = append(errs, os.Remove(at))
	}
	return errors.Join(errs...)
}

// placeStatistics puts the statistics files of a folder where those of an earlier run were: as a whole, unless something of others is
// there.
func placeStatistics(dir, at string) error {
	err := os.Rename(dir, at)
	if err == nil || !exists(at) {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(dir, f.Name()), filepath.Join(at, f.Name())); err != nil {
			return err
		}
	}
	return os.Remove(dir)
}
