package admin

import (
	"fmt"
	"strings"

	"github.com/arraysim/arraysim/internal/iscsi"
)

// validatePortalLimits checks the bounds of what initiators can make the portal hold.
func (c *Config) validatePortalLimits() error {
	p := &c.Portal
	sessions := p.Sessions
	if sessions == 0 {
		sessions = defaultSessions
	}
	switch least := Size(longestCommand + sessions*minShare); {
	case p.Connections < 0 || p.Connections > maxConnections:
		return c.src.at("portal.connections", "connections is %d; it is 1 to %d", p.Connections, maxConnections)
	case p.Sessions < 0 || p.Sessions > maxSessions:
		return c.src.at("portal.sessions", "sessions is %d; it is 1 to %d", p.Sessions, maxSessions)
	case p.Memory != 0 && p.Memory < least:
		return c.src.at("portal.memory", "a portal memory of %s is too small for the longest command and %s for each of %d sessions; give it at least %s",
			p.Memory, Size(minShare), sessions, least)
	case p.Preferred < 0 || p.Preferred > 1+len(p.Further):
		return c.src.at("portal.preferred", "preferred is %d; it is the number of a portal, 1 to %d, or 0 for none", p.Preferred, 1+len(p.Further))
	}
	return nil
}

// validateCHAP checks what can be said of CHAP without the secrets.
func (c *Config) validateCHAP() error {
	h := c.Portal.CHAP
	if h == nil {
		return nil
	}
	common := h.User != "" || h.SecretFile != "" || h.MutualUser != "" || h.MutualSecretFile != ""
	if (common || len(h.Initiators) == 0) && (h.User == "" || h.SecretFile == "") {
		return c.src.at("portal.chap", "chap needs user and secret_file, or initiators with a secret of each")
	}
	const together = "mutual_user and mutual_secret_file go together; give both or none"
	if (h.MutualUser == "") != (h.MutualSecretFile == "") {
		return c.src.at("portal.chap", together)
	}
	seen := map[string]bool{}
	for i := range h.Initiators {
		x, at := &h.Initiators[i], fmt.Sprintf("portal.chap.initiators[%d]", i)
		if err := checkISCSIName(x.Name); err != nil {
			return c.src.at(at+".name", "%w", err)
		}
		switch name := strings.ToLower(x.Name); {
		case seen[name]:
			return c.src.at(at+".name", "initiator %s appears twice; remove one", x.Name)
		case x.SecretFile == "":
			return c.src.at(at, "initiator %s has no secret_file; add one", x.Name)
		case (x.MutualUser == "") != (x.MutualSecretFile == ""):
			return c.src.at(at, together)
		default:
			seen[name] = true
		}
	}
	return nil
}

// loadCHAP reads the secrets; nil asks for none. CHAP.Check tells whether they differ.
func (d *daemon) loadCHAP() (*iscsi.CHAP, error) {
	h := d.cfg.Portal.CHAP
	if h == nil {
		return nil, nil
	}
	load := func(user, file, mutualUser, mutualFile string) (*iscsi.CHAP, error) {
		x := &iscsi.CHAP{User: user, MutualUser: mutualUser}
		for _, s := range []struct {
			to   *[]byte
			file string
		}{{&x.Secret, file}, {&x.MutualSecret, mutualFile}} {
			if s.file == "" {
				continue
			}
			var err error
			if *s.to, err = iscsi.ReadSecret("CHAP secret", s.file); err != nil {
				return nil, err
			}
			if len(*s.to) < minSecret {
				d.log.Warn("a CHAP secret is too short; RFC 7143 requires 12 bytes or more", "file", s.file)
			}
		}
		return x, nil
	}
	all, err := load(h.User, h.SecretFile, h.MutualUser, h.MutualSecretFile)
	if err != nil {
		return nil, err
	}
	all.Initiators = map[string]*iscsi.CHAP{}
	for _, x := range h.Initiators {
		user := x.User
		if user == "" {
			user = x.Name
		}
		if all.Initiators[x.Name], err = load(user, x.SecretFile, x.MutualUser, x.MutualSecretFile); err != nil {
			return nil, err
		}
	}
	return all, nil
}
