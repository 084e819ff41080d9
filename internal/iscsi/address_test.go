package iscsi

import (
	"slices"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, row := range []struct {
		in, portal, target string
		lun                uint64
		user, secret       string
		ok                 bool
	}{
		{"iscsi://h/iqn.x/0", "h:3260", "iqn.x", 0, "", "", true},
		{"iscsi://u%a%25b@[::1]:99/iqn.x/7", "[::1]:99", "iqn.x", 7 << 48, "u", "a%b", true},
		{"iscsi://u%p@ss/w@h:99/iqn.x/7", "h:99", "iqn.x", 7 << 48, "u", "p@ss/w", true},
		{"iscsi://[fe80::1%eth0]/iqn.x/7", "[fe80::1%eth0]:3260", "iqn.x", 7 << 48, "", "", true},
		{"iscsi://h/iqn.x/300", "h:3260", "iqn.x", 1<<62 | 300<<48, "", "", true},
		{"iscsi://bob%se%20cret@h/iqn.x/256", "h:3260", "iqn.x", 1<<62 | 256<<48, "bob", "se cret", true},
		{"iscsi://bob@h/iqn.x/1?secret_file=/a@b", "h:3260", "iqn.x", 1 << 48, "bob", "", true},
		{"iscsi://u%a?b@h/iqn.x/1?mutual_user=m&mutual_secret_file=/a", "h:3260", "iqn.x", 1 << 48, "u", "a?b", true},
		{"iscsi://u%a@h/iqn.x/1?secret_file=/a", "", "", 0, "", "", false},
		{"iscsi://u@h/iqn.x/1?secret_file=", "", "", 0, "", "", false},
		{"iscsi://u@h/iqn.x/1?secret_file=/a&secret_file=/b", "", "", 0, "", "", false},
		{"iscsi://u@h/iqn.x/1?secret_file=/a&b=c", "", "", 0, "", "", false},
		{"iscsi://h/iqn.x", "", "", 0, "", "", false},
		{"iscsi://h/iqn.x/99999", "", "", 0, "", "", false},
		{"iscsi://h:x/iqn.x/0", "", "", 0, "", "", false},
		{"iscsi:///iqn.x/1", "", "", 0, "", "", false},
		{"iscsi://h/iqn.x/1/2", "", "", 0, "", "", false},
		{"http://h/iqn.x/0", "", "", 0, "", "", false},
	} {
		a, err := ParseAddress(row.in)
		if (err == nil) != row.ok {
			t.Errorf("%s: error %v", row.in, err)
			continue
		}
		if !row.ok {
			if !strings.Contains(err.Error(), "iscsi://") {
				t.Errorf("%s: the error does not say how to write it: %v", row.in, err)
			}
			continue
		}
		if a.Portal != row.portal || a.Target != row.target || a.LUN != row.lun || (a.CHAP == nil) != (row.user == "") || a.CHAP != nil && (a.CHAP.User != row.user || string(a.CHAP.Secret) != row.secret) {
			t.Errorf("%s: got %+v", row.in, a)
		}
	}
}

// TestNoSecretIsShown: whatever is wrong with an address, neither the error nor what a message shows of it has the secret, and
// what cannot be anything else is not taken for a path, which an error of the system would show.
func TestNoSecretIsShown(t *testing.T) {
	for _, in := range []string{
		"iscsi://u%geheim",
		"iscsi://u%geheim/iqn.x/0",
		"iscsi://u%geheim:3260/iqn.x/0",
		"iscsi://u%geheim@h/iqn.x",
		"iscsi://u%geheim@x@h/iqn.x/x",
		"iscsi://u%x@geheim",
		"iscsi://u%x@geheim/iqn.x",
		"iscsi://u%ge%zzheim@h/iqn.x/0/0",
		"iscsi://u:geheim@h/iqn.x",
		"iscsi://u:geheim",
		"iscsi://u:geheim/iqn.x/0",
		"iscsi:/u%geheim@h/iqn.x/0",
		"iscsi:u%geheim@h/iqn.x/0",
		"iscsi:/u:geheim",
		"ISCSI://u%geheim@h/iqn.x/0",
		"iscsis://u%geheim@h/iqn.x/0",
		"http://u:geheim@h/iqn.x/0",
		"p=iscsi://u%geheim@h/iqn.x/0",
		"//u%geheim@h/iqn.x/0",
		"u%geheim@h/iqn.x/0",
		"u:geheim@h/iqn.x/0",
		"%geheim@h/iqn.x/0",
		"u%ge\nheim@h/iqn.x/0",
		"iscsi://h/iqn.x/0?target_password=geheim",
		"iscsi://u@h/iqn.x/0?secret=geheim",
	} {
		if !IsAddress(in) {
			t.Errorf("%s is taken for a path", in)
		}
		_, err := ParseAddress(in)
		if err == nil {
			t.Errorf("%s is an address", in)
			continue
		}
		if text := err.Error() + WithoutSecret(in); strings.Contains(text, "heim") {
			t.Errorf("%s: shown is %s", in, text)
		}
	}
	for in, want := range map[string]string{
		"iscsi://u%geheim@h/iqn.x/0":                  "iscsi://h/iqn.x/0",
		"iscsi://u:geheim@h/iqn.x/0":                  "iscsi://h/iqn.x/0",
		"iscsi://u%ge@he/im@h/iqn.x/0":                "iscsi://h/iqn.x/0",
		"iscsi://[fe80::1%eth0]:99/iqn.x/0":           "iscsi://[fe80::1%eth0]:99/iqn.x/0",
		"iscsi://h:99/iqn.x:y/x":                      "iscsi://h:99/iqn.x:y/x",
		"iscsi://h":                                   "iscsi://h",
		"iscsi://u@h/iqn.x/0?secret_file=/run/heim@b": "iscsi://h/iqn.x/0",
	} {
		if got := WithoutSecret(in); got != want || !IsAddress(in) {
			t.Errorf("%s: shown is %s, want %s", in, got, want)
		}
	}
	paths := []string{"/dev/sda", "disk", "./u%a@b", "/dev/disk/by-id/x:y", "a@b", "/mnt/a%b@c"}
	if at := slices.IndexFunc(paths, IsAddress); at >= 0 {
		t.Errorf("%s is taken for an address", paths[at])
	}
}

// TestSlipsShowNoSecret: an address with one character too few, too many or wrong.
func TestSlipsShowNoSecret(t *testing.T) {
	const secret = "geheim"
	for _, right := range []string{"iscsi://u%" + secret + "@h:99/iqn.x:y/0", "iscsi://u%x@" + secret + "@[::1]/iqn.x:y/0", "iscsi://u:" + secret + "@h/iqn.x/0", "iscsi://u%" + secret + "@h/iqn.x:y/0?mutual_user=m"} {
		for at := range right {
			for _, put := range []string{"", "%", "@", ":", "/", ".", "[", "0"} {
				for _, in := range []string{right[:at] + put + right[at+1:], right[:at] + put + right[at:]} {
					if !strings.Contains(in, secret) {
						continue
					}
					a, err := ParseAddress(in)
					shown := WithoutSecret(in) + a.Portal + a.Target
					if err != nil {
						shown += err.Error()
					}
					if !IsAddress(in) || strings.Contains(shown, secret) {
						t.Errorf("%s: shown is %s", in, shown)
					}
				}
			}
		}
	}
}
