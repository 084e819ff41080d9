package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The page that is embedded was built from what web/ holds now. scripts/web.sh, where npm
// is there, builds it again and compares.
func TestPageIsUpToDate(t *testing.T) {
	const web = "../../web"
	files := []string{"package.json", "package-lock.json", "tsconfig.json", "build.mjs"}
	sources, err := os.ReadDir(filepath.Join(web, "src"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sources {
		files = append(files, "src/"+f.Name())
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(web, f))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(sum, f)
		sum.Write(b)
	}
	built, err := page.ReadFile("page/sources.sha256")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != strings.TrimSpace(string(built)) {
		t.Error("internal/admin/page was not built from what web/ holds; run: scripts/web.sh build")
	}
}

func TestPageSize(t *testing.T) {
	b, err := page.ReadFile("page/app.js")
	if err != nil || len(b) == 0 || len(b) > 300_000 {
		t.Errorf("app.js has %d bytes; at most 300,000 are allowed: %v", len(b), err)
	}
}
