package handlers

import "testing"

func TestACachedLUNIsNamedByItsNumber(t *testing.T) {
	for config, want := range map[string]string{"0": "0", "007": "7", "16383": "16383", "": "", "x": "", "-1": "", "16384": "", "0/a=b": ""} {
		s, err := parseCached(config)
		if (err == nil) != (want != "") || s.Volume != want {
			t.Errorf("%q: volume %q, %v", config, s.Volume, err)
		}
		if err == nil && (!s.MustExist || s.Domain == "") {
			t.Errorf("%q: %+v", config, s)
		}
	}
	var r Registry
	if err := r.Add(NewHostCache(nil, nil)); err != nil {
		t.Error(err)
	}
	if st := r.Subtypes()[0]; st.Name() != "hostcache" || st.Check("none") == nil {
		t.Errorf("%s takes a wrong string", st.Name())
	}
}
