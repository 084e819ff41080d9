// Package report turns counters into findings and pictures: which pool's partition of
// the write cache is full, which volume holds it, whether hosts wrote that, what was
// written undercover, which response-time towers followed and what is to be done.
//
//	data.go      time series by pool and volume, from cumulative counters
//	load.go      where counters come from; table.go, iostats.go, prometheus.go, mapped.go, simrun.go read them
//	unknown.go   what is not known, and findings that are refused for it
//	analyze.go   findings: partitions, holders
//	undercover.go findings: undercover writes, and below what nothing is proved
//	label.go     what the origin label says, where an array has one
//	tower.go     findings: response-time towers and their causes
//	whatif.go    the share of the offload and of the partition's cap in a tower
//	text.go      findings as text
//	picture.go   the charts of a run; page.go draws them
//	hostcache.go, performancemap.go  the charts of host caches, and what disks gain by them
//
// Findings are made from what real arrays publish. What the origin label of our own lower
// layer says is shown beside them and in pictures.
package report
