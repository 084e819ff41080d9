package fit

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"
)

// esxtopTime is how esxtop's batch mode writes the time of a line.
const esxtopTime = "01/02/2006 15:04:05"

// nearlyIdle is the share of an interval's I/Os whose size or latency is written as 0, which is rounded or was never
// measured, up to which the others are taken for all of the load.
const nearlyIdle = 0.01

// fromESXTop reads a batch file of esxtop: rates and mean response times of the devices of a host.
func fromESXTop(name string, load Load) ([]Observation, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := csv.NewReader(f)
	head, err := in.Read()
	if err != nil {
		return nil, err
	}
	at := map[string]map[string]int{} // by device, by counter
	var devices []map[string]int      // in the file's order: sums of floats depend on it
	for i, c := range head {
		if m := esxtopColumn.FindStringSubmatch(c); m != nil {
			if at[m[1]] == nil {
				at[m[1]] = map[string]int{}
				devices = append(devices, at[m[1]])
			}
			at[m[1]][m[2]] = i
		}
	}
	if len(devices) == 0 {
		return nil, errors.New("it has no columns of disk devices; record them by esxtop -b with the disk device panel")
	}
	var all []reading
	last := time.Time{}
	for n := 2; ; n++ {
		line, err := in.Read()
		if errors.Is(err, io.EOF) {
			out := observe(name, all, load)
			if len(out) == 0 {
				return nil, errors.New("no line has the rate, the MBytes and the guest latency (GAVG) of reads and writes of all its devices; record all columns of the disk device panel")
			}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		now, err := time.Parse(esxtopTime, line[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		r := reading{seconds: now.Sub(last).Seconds()}
		if last.IsZero() {
			r.seconds = 1 // its weight among the others; the first line does not say since when it counts
		}
		last = now
		idle := reading{} // I/Os of devices that did so little that their figures are rounded to 0
		for _, columns := range devices {
			get := func(counter string) float64 { // NaN: not known
				i, ok := columns[counter]
				if !ok || i >= len(line) {
					return math.NaN()
				}
				v, err := strconv.ParseFloat(line[i], 64)
				if err != nil || math.IsInf(v, 0) || v < 0 {
					return math.NaN()
				}
				return v
			}
			for d, kind := range []string{"Read", "Write"} {
				verb := []string{"Read", "Written"}[d]
				ops := get(kind + "s/sec")
				bytes, wait := get("MBytes "+verb+"/sec")*(1<<20), get("Average Guest MilliSec/"+kind)
				if ops > 0 && (bytes == 0 || wait == 0) {
					idle.ops[d] += ops
					continue
				}
				r.ops[d] += ops
				r.bytes[d] += zeroIfIdle(bytes, ops)
				r.wait[d] += zeroIfIdle(wait/1e3*ops, ops)
			}
		}
		if unknown := idle.ops[0] + idle.ops[1]; unknown > nearlyIdle*(unknown+r.ops[0]+r.ops[1]) {
			r.wait[0] = math.NaN() // of too much of the load it is not known what it was
		}
		all = append(all, r)
	}
}
