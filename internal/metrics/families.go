package metrics

// The families. Units are base units (bytes, seconds); see docs/counters.md.
var (
	// Host (upper) layer: what hosts and their tools see, taken in the SCSI layer.

	HostCommands    = counter("host_commands_total", "SCSI commands completed, as hosts see them.", "volume", "pool", "host", "op", "status")
	HostTransferred = counter("host_transferred_bytes_total", "Data of volumes moved over the wire, without parameter lists.", "volume", "pool", "direction")
	HostDescribed   = counter("host_described_bytes_total", "Bytes that offload commands describe without moving them over the wire.", "volume", "pool", "op")
	HostDuration    = histo("host_command_duration_seconds", "Time from a command's arrival to its status.", "volume", "op")
	HostQueueDepth  = gauge("host_queue_depth", "Commands in progress.", "volume")

	// Offload engine.

	OffloadOperations = counter("offload_operations_total", "Offloads executed, by the path they took.", "primitive", "volume", "path", "result")
	OffloadBytes      = counter("offload_bytes_total", "Bytes that offloads covered, by the path they took.", "primitive", "src_pool", "dst_pool", "path")
	OffloadInflight   = gauge("offload_inflight_bytes", "Bytes of data copies in progress.", "primitive", "pool")

	OffloadThrottled = counter("offload_throttled_seconds_total", "Time that pieces of offloads waited for the offload budget.", "primitive", "pool")

	// Write cache (lower layer).

	CacheAdmitted     = counter("cache_admitted_bytes_total", "Bytes admitted to the write cache.", "pool", "volume", "origin", "mode")
	CacheRecovered    = counter("cache_recovered_bytes_total", "Dirty bytes that a restart found beyond what was counted.", "pool", "volume", "origin")
	CacheDirty        = gauge("cache_dirty_bytes", "Bytes in the write cache that are not yet on the back end.", "pool", "volume", "origin")
	CacheOverwritten  = counter("cache_overwritten_bytes_total", "Dirty bytes replaced before they were destaged.", "pool", "volume", "origin")
	CacheDiscarded    = counter("cache_discarded_bytes_total", "Dirty bytes dropped because nothing refers to them any longer.", "pool", "volume", "origin")
	CacheDestaged     = counter("cache_destaged_bytes_total", "Dirty bytes written to the back end.", "pool", "volume", "origin")
	CacheLimit        = gauge("cache_partition_limit_bytes", "Cap of a pool's partition of the write cache.", "pool")
	CacheUsed         = gauge("cache_partition_used_bytes", "Write cache held by a pool, destages in flight included.", "pool")
	CacheSize         = gauge("cache_size_bytes", "Size of the write cache.")
	CacheWait         = histo("cache_admission_wait_seconds", "Time that writes waited for room in their partition.", "pool", "origin")
	CacheWaiting      = gauge("cache_admission_waiting_bytes", "Bytes that wait for room in a partition.", "pool", "origin")
	CacheUsedSeconds  = counter("cache_partition_used_byte_seconds_total", "Integral of the write cache held by a pool over time: its rate is the mean in bytes.", "pool")
	CacheDirtySeconds = counter("cache_dirty_byte_seconds_total", "Integral of a volume's dirty bytes over time: its rate is the mean in bytes.", "pool", "volume")
	CachePinned       = gauge("cache_pinned_bytes", "Write cache held by data for mdisks that are offline.", "pool")
	Undercover        = counter("undercover_write_bytes_total", "Bytes written below the host layer on behalf of offloads: no host sent them.", "pool", "volume", "origin")

	// Back end (lower layer).

	BackendOperations = counter("backend_operations_total", "Back-end I/O operations.", "pool", "mdisk", "direction", "origin", "reason")
	BackendBytes      = counter("backend_bytes_total", "Back-end I/O bytes.", "pool", "mdisk", "direction", "origin", "reason")
	BackendDuration   = histo("backend_operation_duration_seconds", "Time of a back-end operation, queueing included.", "pool", "mdisk", "direction")
	BackendQueue      = gauge("backend_queue_depth", "Back-end operations waiting or in progress.", "pool", "mdisk")
	BackendDiscards   = counter("backend_discards_total", "Discards of free space on a back-end disk.", "pool", "mdisk")
	BackendDiscarded  = counter("backend_discarded_bytes_total", "Bytes of free space that were discarded.", "pool", "mdisk")

	BackendDiscardFailures = counter("backend_discard_failures_total", "Discards of free space that failed.", "pool", "mdisk")

	// iSCSI portal.

	ISCSIConnections = gauge("iscsi_connections", "TCP connections of the portal, those in login included.")
	ISCSISessions    = gauge("iscsi_sessions", "Open iSCSI sessions.")
	ISCSIErrors      = counter("iscsi_protocol_errors_total", "Connections and logins that ended because the peer broke the protocol or a limit.", "kind")
	ISCSIReceived    = counter("iscsi_received_bytes_total", "Bytes received from initiators, headers included.")
	ISCSISent        = counter("iscsi_sent_bytes_total", "Bytes sent to initiators, headers included.")

	// Links between nodes. Each end has its own: node is the other one.

	LinkUp          = gauge("link_up", "1 while there is a link to the node, else 0.", "node")
	LinkConnects    = counter("link_connects_total", "Links that were established with the node.", "node")
	LinkCommands    = counter("link_commands_total", "SCSI commands that went over the link and ended.", "node")
	LinkBytes       = counter("link_bytes_total", "Data of these commands, parameter lists included.", "node", "direction")
	LinkInterrupted = counter("link_interrupted_commands_total", "Commands that were in progress when their link broke.", "node")
	LinkRefused     = counter("link_refused_total", "Connections from nodes that did not become a link.")
	LinkTransition  = counter("link_transition_answers_total", "Commands that this node answered itself because no owner was linked.")

	// Links of copies between arrays. Each end has its own: peer is the other array, role what that is in the copies.

	PeerUp    = gauge("peer_up", "1 while there is a link to the other array, else 0.", "peer", "role")
	PeerLinks = counter("peer_links_total", "Links that were made with the other array.", "peer", "role")
	PeerBytes = counter("peer_read_bytes_total", "Data that was read at the source for copies to the other array.", "peer", "role")

	// Ownership of an array in a Ceph pool, and what the pool is asked.

	OwnerEpoch      = gauge("owner_epoch", "Number of the current ownership of the array; each take-over and each start raises it.")
	OwnerServing    = gauge("owner_serving", "1 while this process may answer hosts, 0 while its lease has to be renewed first.")
	OwnerLeaseAge   = gauge("owner_lease_age_seconds", "Time since the last successful renewal of the lease was sent.")
	RadosOperations = counter("rados_operations_total", "Operations on objects that have ended.", "kind")
	RadosErrors     = counter("rados_operation_errors_total", "Operations on objects that ended with an error.", "kind")
	RadosWaits      = counter("rados_window_waits_total", "Operations that had to wait for room in the window.", "kind")
	RadosInFlight   = gauge("rados_operations_in_flight", "Operations on objects that were sent and have not ended.", "kind")
	RadosDuration   = histo("rados_operation_duration_seconds", "Time of an operation on an object from its submission to the cluster to its end.", "kind")

	// State.

	PoolCapacity  = gauge("pool_capacity_bytes", "Usable size of a pool.", "pool")
	PoolAllocated = gauge("pool_allocated_bytes", "Space of a pool that is allocated or reserved.", "pool")
	VolumeSize    = gauge("volume_size_bytes", "Size of a volume as hosts see it.", "volume", "pool")
	VolumeState   = gauge("volume_provisioned_bytes", "Bytes of a volume by provisioning state.", "volume", "pool", "state")
	BuildInfo     = gauge("build_info", "Constant 1, labelled with the version.", "version", "goversion")
	Problems      = gauge("health_problems", "What fails now: the lines that arraysim status has of it.")
	UptimeSeconds = gauge("uptime_seconds", "Time since the array started.")
)

// All lists every family in the order of declaration.
func All() []*Family { return all }

var all []*Family

const prefix = "arraysim_"

func add(kind Kind, name, help string, labels []string) *Family {
	f := &Family{Name: prefix + name, Help: help, Kind: kind, Labels: labels, index: len(all)}
	all = append(all, f)
	return f
}

func counter(name, help string, labels ...string) *Family { return add(Counter, name, help, labels) }
func gauge(name, help string, labels ...string) *Family   { return add(Gauge, name, help, labels) }
func histo(name, help string, labels ...string) *Family   { return add(Histo, name, help, labels) }
