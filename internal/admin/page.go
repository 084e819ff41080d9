package admin

import (
	"embed"
	"io/fs"
	"net/http"
)

// page is the live page, built from web/ by scripts/web.sh.
//
//go:embed page
var page embed.FS

// servePage serves the page's files. They come from the binary and load nothing from
// elsewhere, which the policy in the header makes sure of.
func servePage() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic("admin: internal error: " + err.Error())
	}
	serve := http.FileServerFS(files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}
