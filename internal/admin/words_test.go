package admin

import "testing"

func TestChangesInWords(t *testing.T) {
	for _, row := range []struct{ method, path, body, want string }{
		{"POST", "/volumes", `{"name":"a","pool":"p","size":1073741824,"export":{"lun":7}}`, "change a//volume a created: 1 GiB in pool p, exported as LUN 7"},
		{"DELETE", "/volumes/a%20b?force=true", "", "change a b//volume a b deleted"},
		{"POST", "/volumes/a/resize", `{"size":33554432,"force":true}`, "change a//volume a resized to 32 MiB"},
		{"POST", "/volumes/a/zero", "", "change a//volume a zeroed"},
		{"POST", "/volumes/a/clone", `{"name":"b","pool":"q"}`, "change b//volume a cloned to b in pool q"},
		{"POST", "/exports", `{"volume":"a","lun":3,"initiators":["iqn.x"]}`, "change a//volume a exported as LUN 3 to iqn.x"},
		{"DELETE", "/exports/a?lun=3", "", "change a//volume a is no longer LUN 3"},
		{"DELETE", "/exports/a", "", "change a//volume a is no longer exported"},
		{"DELETE", "/findings/4", "", "change //finding 4 dismissed"},
		{"PATCH", "/policy", `{"budget_percent":25,"admission":"fair"}`, "change //policy of the write cache changed: admission fair, budget 25 %"},
		{"POST", "/pools", `{"name":"p"}`, "change /p/pool p created"},
		{"DELETE", "/pools/p", "", "change /p/pool p deleted"},
		{"PATCH", "/pools/p", `{"write_mode":"write_through"}`, "fault /p/pool p takes writes as write_through"},
		{"PATCH", "/pools/p/mdisks/m0", `{"offline":true}`, "fault /p/mdisk p.m0 taken offline"},
		{"PATCH", "/pools/p/mdisks/m0", `{"offline":false}`, "fault /p/mdisk p.m0 brought back online"},
		{"PATCH", "/pools/p/mdisks/m0", `{"bandwidth":4194304,"iops":0}`, "fault /p/mdisk p.m0 limited: bandwidth 4 MiB/s, iops no limit"},
		{"PATCH", "/pools/p/mdisks/m0", `{"offline":false,"iops":100}`, "fault /p/mdisk p.m0 brought back online, limited: iops 100"},
		{"PUT", "/mirror", `{"mirrored":false}`, "fault //the write cache lost its mirror"},
		{"PUT", "/mirror", `{"mirrored":true}`, "fault //the write cache has its mirror again"},
		{"PATCH", "/ports/2", `{"state":"standby"}`, "fault //port 2 is standby"},
		{"POST", "/later", `{"x":1}`, `change //POST /later {"x":1}`}, // of a later version
		{"PATCH", "/policy", `{"budget`, "change //policy of the write cache changed: "},
	} {
		e := changeEvent(row.method, row.path, []byte(row.body))
		if got := string(e.Kind) + " " + e.Volume + "/" + e.Pool + "/" + e.Text; got != row.want {
			t.Errorf("%s %s %s\n got %s\nwant %s", row.method, row.path, row.body, got, row.want)
		}
	}
}
