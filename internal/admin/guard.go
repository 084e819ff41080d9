package admin

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	tokenName = "admin.token"
	auditName = "audit.log"
	// maxAudit is the size at which the audit log begins anew; one old one is kept.
	maxAudit = 8 << 20
	// maxAudited bounds what of a request's body goes into the audit log.
	maxAudited = 1 << 10
	// maxClients bounds the clients that are told apart.
	maxClients = 1024
)

// Token returns the token of a data folder, with which the daemon's HTTP interface
// takes changes over TCP. It is made when there is none.
func Token(data string) (string, error) {
	path := filepath.Join(data, tokenName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		raw := make([]byte, 24)
		_, _ = rand.Read(raw) // never fails (crypto/rand)
		b = []byte(base64.RawURLEncoding.EncodeToString(raw) + "\n")
		err = replaceFile(path, b) // the next start would take a part of it for the token
	}
	token := strings.TrimSpace(string(b))
	if err == nil && len(token) < 16 {
		err = fmt.Errorf("%s holds no token of 16 characters or more; delete it, and start the daemon again", path)
	}
	if err != nil {
		return "", fmt.Errorf("admin token: %w", err)
	}
	return token, nil
}

// ReadToken returns the token of a data folder that a daemon uses.
func ReadToken(data string) (string, error) {
	if _, err := os.Stat(filepath.Join(data, tokenName)); err != nil {
		return "", fmt.Errorf("there is no token in the data folder %s: no daemon has run there; start one with: arraysim serve, or name its folder with --data", data)
	}
	return Token(data)
}

// guard stands before the interface where TCP clients come in: a token, limits by
// client, and no requests that a foreign web page sends in a browser's name.
type guard struct {
	next  http.Handler
	token string
	// openReads lets everybody read: the listener is on the loopback interface.
	openReads bool
	audit     *auditLog

	mu      sync.Mutex
	clients map[string]*client // by address
}

// client is the budget of one address.
type client struct{ reads, changes, failures *rate.Limiter }

func newGuard(next http.Handler, token string, openReads bool, audit *auditLog) *guard {
	return &guard{next: next, token: token, openReads: openReads, audit: audit, clients: map[string]*client{}}
}

// client returns the budget of an address. When too many are known all are
// forgotten, which is generous for an instant and bounds the memory.
func (g *guard) client(addr string) *client {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		addr = host
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.clients[addr]
	if c == nil {
		if len(g.clients) >= maxClients {
			clear(g.clients)
		}
		// A page asks five questions a second; ten pages and a few scripts fit. A
		// guesser gets one token a second.
		c = &client{reads: rate.NewLimiter(100, 200), changes: rate.NewLimiter(20, 60), failures: rate.NewLimiter(1, 10)}
		g.clients[addr] = c
	}
	return c
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, read := g.client(r.RemoteAddr), r.Method == http.MethodGet || r.Method == http.MethodHead
	limit := c.reads
	if !read {
		limit = c.changes
	}
	if !limit.Allow() {
		tooMany(w)
		return
	}
	if !read || !g.openReads {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeProblem(w, http.StatusUnauthorized, "this needs the token that `arraysim token` prints, in the header Authorization: Bearer TOKEN")
			return
		}
		if subtle.ConstantTimeCompare([]byte(given), []byte(g.token)) != 1 {
			if !c.failures.Allow() {
				tooMany(w)
				return
			}
			g.audit.write(record{Client: r.RemoteAddr, Method: r.Method, Path: r.URL.Path, Status: http.StatusUnauthorized, Detail: "wrong token"})
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			writeProblem(w, http.StatusUnauthorized, "the token is wrong; run: arraysim token")
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// ownNames stands before everything that a listener on the loopback interface serves: it refuses requests by
// another name than an address. A name that somebody else's DNS gave to this address would let his page read from here.
func ownNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !localName(r.Host) {
			writeProblem(w, http.StatusForbidden, fmt.Sprintf("this daemon is not called %q; use its address, such as 127.0.0.1", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeProblem(w, http.StatusTooManyRequests, "too many requests from this address; try again in a second")
}

// localName tells whether a request's host is an address or this machine's own name
// for itself.
func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil
}

// record is one line of the audit log.
type record struct {
	Time   time.Time       `json:"time"`
	Client string          `json:"client"`
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"request,omitempty"`
	Status int             `json:"status"`
	Detail string          `json:"detail,omitempty"`
	TookMs int64           `json:"took_ms"`
}

// auditLog says who changed what: a line of JSON for each request that is no read. It
// has no secrets: those never travel, and tokens are in headers, which it does not hold.
type auditLog struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

func openAudit(data string) (*auditLog, error) {
	l := &auditLog{path: filepath.Join(data, auditName)}
	return l, l.open()
}

func (l *auditLog) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("audit log: %w", err)
	}
	l.file, l.size = f, st.Size()
	return nil
}

// write adds a record; a node that has no array has no log of it.
func (l *auditLog) write(r record) {
	if l == nil {
		return
	}
	r.Time = time.Now().UTC()
	b, err := json.Marshal(r)
	if err != nil {
		panic("admin: internal error: " + err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if l.size > maxAudit {
		l.file.Close()
		if err := errors.Join(os.Rename(l.path, l.path+".1"), l.open()); err != nil {
			l.file = nil
			return
		}
	}
	n, _ := l.file.Write(append(b, '\n')) // a full disk must not stop the array
	l.size += int64(n)
}

func (l *auditLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	f := l.file
	l.file = nil
	return f.Close()
}

// status is a ResponseWriter that remembers the status and the beginning of an error.
type status struct {
	http.ResponseWriter
	code int
	body bytes.Buffer
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

func (s *status) Write(b []byte) (int, error) {
	if s.code >= 400 && s.body.Len() < 4096 {
		s.body.Write(b)
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController find the writer.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// audited writes what is no read into the audit log and tells it as an event.
func (d *daemon) audited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		began, s := time.Now(), &status{ResponseWriter: w, code: http.StatusOK}
		head, _ := io.ReadAll(io.LimitReader(r.Body, maxAudited+1))
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
		next.ServeHTTP(s, r)
		rec := record{Client: r.RemoteAddr, Method: r.Method, Path: r.URL.RequestURI(), Status: s.code, TookMs: time.Since(began).Milliseconds()}
		if rec.Client == "" || rec.Client == "@" {
			rec.Client = socketName
		}
		if len(head) <= maxAudited && json.Valid(head) && string(head) != "null" {
			var b bytes.Buffer
			_ = json.Compact(&b, head) // it is valid
			rec.Body = b.Bytes()
		}
		var p Problem
		if s.code >= 400 && json.Unmarshal(s.body.Bytes(), &p) == nil {
			rec.Detail = p.Detail
		}
		d.audit.write(rec)
		d.log.Info("admin", "client", rec.Client, "request", rec.Method+" "+rec.Path, "status", rec.Status, "error", rec.Detail)
		if s.code < 400 && r.URL.Path != apiPath+"/check" && r.URL.Path != apiPath+"/token" {
			d.events.add(changeEvent(rec.Method, strings.TrimPrefix(rec.Path, apiPath), rec.Body))
		}
	})
}
