package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/arraysim/arraysim/internal/metrics"
	"github.com/arraysim/arraysim/internal/metrics/export"
)

// Every copy of a volume counts: a mirror that both copies take is no offence, however often its bytes are destaged, and what
// is written to the second copy alone is found there, in the pool where it is.
func TestEveryCopyIsRead(t *testing.T) {
	const first, each = 20, 100 << 20 // from the set on that the migration begins with, bytes a set
	for _, migrates := range []bool{false, true} {
		dir := t.TempDir()
		w, err := export.NewIOStats(dir, export.IOStatsOptions{Keep: 1000})
		if err != nil {
			t.Fatal(err)
		}
		s := newModel(7, "host-only", false)
		var snap metrics.Snapshot
		for i := range 1800 {
			s.array.step()
			if i%30 == 0 {
				s.array.snapshot(&snap)
				if err := w.Write(&snap); err != nil {
					t.Fatal(err)
				}
			}
		}
		name := s.array.volumes[0].name
		files, err := filepath.Glob(filepath.Join(dir, "Nv_stats*"))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(files)
		for i, f := range files {
			extra := 0
			if migrates {
				extra = max(i-first, 0) * each / 512
			}
			mirror(t, f, name, extra)
		}
		list := fmt.Sprintf("vdisk_name:copy_id:mdisk_grp_id:mdisk_grp_name\n%s:0:0:pool\n%s:1:1:far\n", name, name)
		if err := os.WriteFile(filepath.Join(dir, "lsvdiskcopy"), []byte(list), 0o666); err != nil {
			t.Fatal(err)
		}
		d := load1(t, dir, Options{})
		for _, n := range []string{" copy 0", " copy 1"} {
			if !slices.ContainsFunc(d.Volumes, func(v *Volume) bool { return v.Name == name+n }) {
				t.Fatalf("there is no %s%s", name, n)
			}
		}
		found := detect(d).Undercover
		if !migrates {
			if len(found) > 0 {
				t.Errorf("a mirror is an offence: %+v", found)
			}
			continue
		}
		want := float64(len(files)-1-first) * each
		if len(found) != 1 || found[0].Volume != name+" copy 1" || found[0].Pool != "far" || found[0].Bytes < 0.97*want || found[0].Bytes > 1.03*want {
			t.Errorf("%g bytes were written to copy 1: %+v", want, found)
		}
	}
}

// mirror gives a volume of a file a second copy like its first, into which so many more blocks were destaged.
func mirror(t *testing.T, file, volume string, extra int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(text, []byte(`id="`+volume+`"`))
	begin := at + bytes.Index(text[at:], []byte("<cpy"))
	end := begin + bytes.Index(text[begin:], []byte("</cpy>")) + len("</cpy>")
	second := strings.Replace(string(text[begin:end]), `idx="0"`, `idx="1"`, 1)
	var c xmlNode
	if err := xml.Unmarshal([]byte(second), &c); err != nil {
		t.Fatal(err)
	}
	was := int(c.first("ca").num("ctds"))
	second = strings.Replace(second, `ctds="`+strconv.Itoa(was)+`"`, `ctds="`+strconv.Itoa(was+extra)+`"`, 1)
	text = slices.Insert(text, end, []byte("\n"+second)...)
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
}
