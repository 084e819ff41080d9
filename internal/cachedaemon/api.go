package cachedaemon

import (
	"github.com/arraysim/arraysim/internal/hostcache/tier"
)

// Paths of the API. Each answers JSON, or a status above 399 with one line of text.
const (
	pathCache      = "/v1/cache"            // GET: a Report
	pathReset      = "/v1/cache/reset"      // POST: the statistics begin again; a Report
	pathHistograms = "/v1/cache/histograms" // GET, or POST to begin them again: trace.Histograms as they were
	pathDrop       = "/v1/cache/drop"       // POST: Dropped
	pathContents   = "/v1/cache/contents"   // GET ?from=N: Contents
	pathWarm       = "/v1/cache/warm"       // POST Contents: Warmed
	pathPolicy     = "/v1/cache/policy"     // POST a policyRequest: a Report
	pathQuiesce    = "/v1/cache/quiesce"    // POST a quiesceRequest: a Token
	pathResume     = "/v1/cache/resume"     // POST a Token: a Report
)

// Report is the state of a cached LUN and all that is counted of it.
type Report struct {
	LUN       string          `json:"lun"`
	Requested string          `json:"requested_policy"`
	Effective string          `json:"effective_policy"`
	State     tier.State      `json:"state"`
	Cache     tier.CacheStats `json:"cache"`
	Views     tier.Views      `json:"views"`
	Counters  tier.Stats      `json:"counters"`
	Recovery  tier.Recovery   `json:"recovery"`
	TimeToGo  float64         `json:"time_to_destage_seconds"`
}

// Token is what a quiesce is ended with.
type Token struct {
	Token uint64 `json:"token"`
}

type policyRequest struct {
	Policy string `json:"policy"`
	Wait   bool   `json:"wait"`
}

type quiesceRequest struct {
	Seconds float64 `json:"expires_seconds"`
}
