package admin

import (
	"cmp"
	_ "embed"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// Release is the semantic version that this source is, or leads to: the one that CHANGELOG.md names first.
const Release = "v0.3.0"

// stamp is "COMMIT[+] [TAG]", set by the Makefile (-ldflags -X): the commit, a plus where files differ
// from it, and the tag if the commit has one.
var stamp string

// archived is the same in the archive of a commit, filled in by git archive; elsewhere it is the
// placeholders, which begin with a dollar sign.
//
//go:embed archived.txt
var archived string

// Build says what a binary was built from.
type Build struct {
	Version  string `json:"version"`  // semantic: a release, or one with -dev and the commit
	Commit   string `json:"commit"`   // "unknown" where nothing says it
	Modified bool   `json:"modified"` // files differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"` // OS/architecture
}

// ThisBuild returns what this binary was built from.
func ThisBuild() Build {
	info, _ := debug.ReadBuildInfo()
	return readBuild(stamp, archived, info)
}

// Version is the semantic version of this binary, such as v0.2.0, or v0.2.0-dev+0123456789ab for a
// commit on the way to it.
func Version() string { return ThisBuild().Version }

// tagged is a version that somebody has tagged, and none that the Go command makes of a commit.
var tagged = regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// readBuild takes the commit and the tag from the first that has a commit: the Makefile's stamp, the
// archive, what the Go command writes. A version of the module (go install ...@v0.2.0) counts, too.
func readBuild(stamp, archived string, info *debug.BuildInfo) Build {
	b := Build{Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	tag := ""
	if info != nil {
		tag = info.Main.Version
	}
	if strings.HasPrefix(archived, "$") {
		archived = ""
	}
	if f := strings.Fields(cmp.Or(strings.TrimSpace(stamp), archived)); len(f) > 0 {
		b.Commit, b.Modified = strings.CutSuffix(f[0], "+")
		if len(f) > 1 {
			tag = f[1]
		}
	} else if info != nil {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version = tag; !tagged.MatchString(tag) || b.Modified {
		b.Version = Release + "-dev"
		if b.Commit != "" {
			b.Version += "+" + b.Commit[:min(12, len(b.Commit))]
		}
		if b.Modified {
			b.Version += ".modified"
		}
	}
	b.Commit = cmp.Or(b.Commit, "unknown")
	return b
}
