package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// changeEvent says in words what a request changed. What harms the array on purpose is a fault, all else a
// change. path is what follows the interface's version; body is JSON or empty.
func changeEvent(method, path string, body []byte) Event {
	u, err := url.Parse(path)
	if err != nil {
		u = &url.URL{Path: path}
	}
	var b map[string]any
	_ = json.Unmarshal(body, &b) // without one the words say less
	var parts []string
	for _, s := range strings.Split(strings.Trim(u.EscapedPath(), "/"), "/") {
		if p, err := url.PathUnescape(s); err == nil {
			s = p
		}
		parts = append(parts, s)
	}
	c := changed{method, append(parts, "", "", "", ""), u.Query(), b}
	e := Event{Kind: EventChange}
	switch c.at[0] {
	case "volumes":
		e.Volume, e.Text = c.volume()
	case "exports":
		e.Volume, e.Text = c.export()
	case "findings":
		e.Text = fmt.Sprintf("finding %s dismissed", c.at[1])
	case "policy":
		e.Text = "policy of the write cache changed: " + c.settings()
	case "pools":
		e.Pool, e.Text = c.pool()
		if method == http.MethodPatch {
			e.Kind = EventFault
		}
	case "mirror":
		e.Kind, e.Text = EventFault, "the write cache lost its mirror"
		if c.body["mirrored"] == true {
			e.Text = "the write cache has its mirror again"
		}
	case "ports":
		e.Kind, e.Text = EventFault, fmt.Sprintf("port %s is %s", c.at[1], c.text("state"))
	}
	if e.Text == "" {
		e.Text = strings.TrimSpace(method + " " + path + " " + string(body))
	}
	return e
}

// changed is a request that was carried out.
type changed struct {
	method string
	at     []string // the path's parts, and empty ones
	query  url.Values
	body   map[string]any
}

// text returns a value of the body as people read it.
func (c *changed) text(name string) string {
	switch v := c.body[name].(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case nil:
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// size returns a size of the body as tables have it.
func (c *changed) size(name string) string {
	if n, ok := c.body[name].(float64); ok {
		return Size(n).Human()
	}
	return c.text(name)
}

func (c *changed) volume() (volume, text string) {
	switch {
	case c.method == http.MethodPost && c.at[1] == "":
		volume = c.text("name")
		text = fmt.Sprintf("volume %s created: %s in pool %s", volume, c.size("size"), c.text("pool"))
		if x, ok := c.body["export"].(map[string]any); ok {
			text += fmt.Sprintf(", exported as LUN %v", x["lun"])
		}
		return volume, text
	case c.method == http.MethodDelete:
		return c.at[1], fmt.Sprintf("volume %s deleted", c.at[1])
	case c.at[2] == "resize":
		return c.at[1], fmt.Sprintf("volume %s resized to %s", c.at[1], c.size("size"))
	case c.at[2] == "zero":
		return c.at[1], fmt.Sprintf("volume %s zeroed", c.at[1])
	case c.at[2] == "clone":
		text = fmt.Sprintf("volume %s cloned to %s", c.at[1], c.text("name"))
		if p := c.text("pool"); p != "" {
			text += " in pool " + p
		}
		return c.text("name"), text
	}
	return "", ""
}

func (c *changed) export() (volume, text string) {
	if c.method == http.MethodDelete {
		if lun := c.query.Get("lun"); lun != "" && lun != "-1" {
			return c.at[1], fmt.Sprintf("volume %s is no longer LUN %s", c.at[1], lun)
		}
		return c.at[1], fmt.Sprintf("volume %s is no longer exported", c.at[1])
	}
	text = fmt.Sprintf("volume %s exported as LUN %v", c.text("volume"), c.body["lun"])
	if list, ok := c.body["initiators"].([]any); ok && len(list) > 0 {
		text += " to " + strings.TrimSpace(strings.Trim(fmt.Sprint(list), "[]"))
	}
	return c.text("volume"), text
}

func (c *changed) pool() (pool, text string) {
	switch {
	case c.method == http.MethodPost:
		return c.text("name"), fmt.Sprintf("pool %s created", c.text("name"))
	case c.method == http.MethodDelete:
		return c.at[1], fmt.Sprintf("pool %s deleted", c.at[1])
	case c.at[2] == "":
		return c.at[1], fmt.Sprintf("pool %s takes writes as %s", c.at[1], c.text("write_mode"))
	case c.at[2] == "mdisks":
		mdisk := fmt.Sprintf("mdisk %s.%s", c.at[1], c.at[3])
		var done []string
		if off, ok := c.body["offline"].(bool); ok {
			done = append(done, map[bool]string{true: "taken offline", false: "brought back online"}[off])
			delete(c.body, "offline")
		}
		if len(c.body) > 0 {
			done = append(done, "limited: "+c.settings())
		}
		return c.at[1], mdisk + " " + strings.Join(done, ", ")
	}
	return "", ""
}

// settings lists the body's values.
func (c *changed) settings() string {
	var out []string
	for _, name := range sorted(c.body) {
		v := c.text(name)
		if name == "bandwidth" || strings.HasSuffix(name, "_bytes") {
			v = c.size(name)
		}
		switch {
		case name == "bandwidth" && v == "0 B", name == "iops" && v == "0":
			v = "no limit"
		case name == "bandwidth":
			v += "/s"
		case strings.HasSuffix(name, "_percent"):
			name, v = strings.TrimSuffix(name, "_percent"), v+" %"
		}
		out = append(out, strings.ReplaceAll(name, "_", " ")+" "+v)
	}
	return strings.Join(out, ", ")
}
