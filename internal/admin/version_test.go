package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

const someCommit = "0123456789abcdef0123456789abcdef01234567"

// A binary says which commit it is of, wherever that can be known from, and is a release only as the
// very commit of a tag.
func TestBuild(t *testing.T) {
	vcs := func(modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "v0.0.0-20260101000000-0123456789ab"},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: someCommit}, {Key: "vcs.modified", Value: modified}}}
	}
	of := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	const placeholders = "$Format:%H$\n"
	dev := Release + "-dev+0123456789ab"
	for _, row := range []struct {
		name, stamp, archived string
		info                  *debug.BuildInfo
		version, commit       string
		modified              bool
	}{
		{"nothing is known", "", placeholders, nil, Release + "-dev", "unknown", false},
		{"go build without version control", "", placeholders, of("(devel)"), Release + "-dev", "unknown", false},
		{"go build in a work tree", "", placeholders, vcs("false"), dev, someCommit, false},
		{"go build in a work tree with changes", "", placeholders, vcs("true"), dev + ".modified", someCommit, true},
		{"go install of a release", "", placeholders, of("v0.2.1"), "v0.2.1", "unknown", false},
		{"make", someCommit, placeholders, of("(devel)"), dev, someCommit, false},
		{"make with changes", someCommit + "+", placeholders, of("(devel)"), dev + ".modified", someCommit, true},
		{"make at a tag", someCommit + " v0.2.0", placeholders, of("(devel)"), "v0.2.0", someCommit, false},
		{"make at a tag with changes", someCommit + "+ v0.2.0", placeholders, of("(devel)"), dev + ".modified", someCommit, true},
		{"make at a candidate", someCommit + " v0.3.0-rc.1", placeholders, of("(devel)"), "v0.3.0-rc.1", someCommit, false},
		{"an archive", "", someCommit + " \n", of("(devel)"), dev, someCommit, false},
		{"the archive of a tag", "", someCommit + " v0.2.0\n", of("(devel)"), "v0.2.0", someCommit, false},
		{"an archive behind a tag", "", someCommit + " v0.2.0-5-g0123456\n", of("(devel)"), dev, someCommit, false},
	} {
		b := readBuild(row.stamp, row.archived, row.info)
		if b.Version != row.version || b.Commit != row.commit || b.Modified != row.modified || b.Go == "" || !strings.Contains(b.Platform, "/") {
			t.Errorf("%s: got %+v, want %s of %s, modified %v", row.name, b, row.version, row.commit, row.modified)
		}
	}
}

// The source leads to the version that CHANGELOG.md names first.
func TestReleaseIsInTheChangelog(t *testing.T) {
	b, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindSubmatch(b)
	if m == nil || "v"+string(m[1]) != Release {
		t.Errorf("CHANGELOG.md begins with %q, the source is on the way to %s", m, Release)
	}
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(Release) {
		t.Errorf("%s is no semantic version", Release)
	}
}

// An archive of a commit has the commit in the place where version.go looks.
func TestArchiveSaysItsCommit(t *testing.T) {
	git := func(dir string, args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		c.Dir, c.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
		out, err := c.Output()
		if err != nil {
			t.Fatalf("git %q: %v", args, err)
		}
		return string(out)
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	dir := t.TempDir()
	for to, from := range map[string]string{".gitattributes": "../../.gitattributes", "internal/admin/archived.txt": "archived.txt"} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(to, "txt") && !strings.HasPrefix(string(b), "$") {
			t.Skip("this is an archive itself")
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(dir, "init", "-q")
	git(dir, "add", ".")
	git(dir, "commit", "-qm", "one")
	head := strings.TrimSpace(git(dir, "rev-parse", "HEAD"))
	cat := func() string { return git(dir, "cat-file", "-p", "HEAD:internal/admin/archived.txt") }
	if !strings.HasPrefix(cat(), "$") {
		t.Fatalf("the repository has %q", cat())
	}
	extract := func() string {
		t.Helper()
		c := exec.Command("sh", "-c", "git archive HEAD internal | tar -xO internal/admin/archived.txt")
		c.Dir = dir
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if b := readBuild("", extract(), nil); b.Commit != head || b.Version != Release+"-dev+"+head[:12] {
		t.Errorf("of an archive: %+v", b)
	}
	git(dir, "tag", "-a", "-m", "release", "v7.8.9")
	if b := readBuild("", extract(), nil); b.Commit != head || b.Version != "v7.8.9" {
		t.Errorf("of the archive of a tag: %+v", b)
	}
}
